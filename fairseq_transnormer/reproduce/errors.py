"""Mistakes of the user, reported in one line."""


class ReproduceError(Exception):
    """A mistake in an option, a file or a folder; its text is the whole message."""
