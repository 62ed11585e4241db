"""GLUE, and labelled texts of the user's own."""
