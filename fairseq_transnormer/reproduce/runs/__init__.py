"""Runs: their folders, and who runs them where and when."""
