"""Runs the paper's tables and sets what is measured beside the paper's figures."""
