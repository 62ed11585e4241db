"""What is wrong with what the user gave."""


class ScoringError(ValueError):
    """A setting, a file or a text is not as it must be; the message says how."""
