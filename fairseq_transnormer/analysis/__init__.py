"""Reads what runs and models left; owns no training."""
