"""A folder or files of the user's own text."""
