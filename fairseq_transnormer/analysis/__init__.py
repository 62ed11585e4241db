"""Reads what runs and models left behind; owns no training."""
