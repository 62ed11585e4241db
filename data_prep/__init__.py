"""Command-line tools that prepare data: see README.md in this folder."""
