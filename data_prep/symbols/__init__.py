"""Symbols and pixels: generated series, and pictures."""
