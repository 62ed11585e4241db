"""What is wrong with an export, or with what shall be exported."""


class ExportError(ValueError):
    """A checkpoint, a folder or a setting does not do; the message says why."""
