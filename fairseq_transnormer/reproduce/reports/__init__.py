"""What runs left: figures, pages, verdicts."""
