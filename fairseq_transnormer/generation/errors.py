"""What is wrong with what the user gave."""


class GenerationError(ValueError):
    """A setting, a file or a prompt is not as it must be; the message says how."""
