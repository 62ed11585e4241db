"""The exit code of a training that stopped on a signal."""

import os
import signal
from pathlib import Path

# "temporary failure, try again" of sysexits.h, 75: the same command resumes
EXIT_RESUMABLE = os.EX_TEMPFAIL
# names a file that workers make: torchrun, which starts them, always ends with 1
RESUMABLE_FILE = "RESUMABLE_FILE"


def ended_by(code: int) -> str:
    """The cause of a process's end, in words, by its code from ``subprocess``."""
    if code < 0:
        return f"signal {-code} ({signal.strsignal(-code)})"
    return f"exit code {code}"


def mark_resumable() -> None:
    """Make the file that the environment variable names, if it is set."""
    if file := os.environ.get(RESUMABLE_FILE):
        Path(file).touch()
