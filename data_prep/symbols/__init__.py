"""Data of symbols: series to copy or recall, and images pixel by pixel."""
