"""Runs the paper's tables and compares results with the paper's figures."""
