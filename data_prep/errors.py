"""Mistakes in what the user gave, and the one place that reports them."""

import sys
from collections.abc import Callable


class InputError(Exception):
    """A mistake in an option, a file or a download; its text is the whole message."""


def run_command(name: str, command: Callable[[], None], failure: int = 2) -> int:
    """Runs ``command``; returns the exit code, after one line on stderr for a mistake.

    Everything else that is raised is a bug of ours and keeps its traceback.
    """
    try:
        command()
    except InputError as error:
        message, code = str(error), failure
    except KeyboardInterrupt:
        message, code = "interrupted; run the same command again to resume", 130
    except OSError as error:  # disk full, no permission
        where = f"{error.filename}: " if error.filename else ""
        message, code = f"{where}{error.strerror or error}", failure
    else:
        return 0
    print(f"{name}: error: {message}", file=sys.stderr)
    return code
