"""Data of symbols: the copy task, and digits pixel by pixel."""
