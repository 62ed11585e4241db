"""What is wrong with what the user gave."""


class OwnTextError(ValueError):
    """A folder, a setting or an earlier run is not as it must be; the message says how.

    An empty message: a command that was run has said it.
    """

    def __init__(self, message: str = "", code: int = 2):
        super().__init__(message)
        self.code = code
