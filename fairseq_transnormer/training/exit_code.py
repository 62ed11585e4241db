"""How a training that was asked to stop reports it."""

import os
import signal
from pathlib import Path

# "temporary failure, try again" of sysexits.h, 75: the same command resumes
EXIT_RESUMABLE = os.EX_TEMPFAIL
# names a file to make, for who starts workers through torchrun, which ends with 1 then
RESUMABLE_FILE = "RESUMABLE_FILE"


def ended_by(code: int) -> str:
    """What has ended a process, by its code from ``subprocess``, in words."""
    if code < 0:
        return f"signal {-code} ({signal.strsignal(-code)})"
    return f"exit code {code}"


def mark_resumable() -> None:
    """Make the file that the environment names, if it names one."""
    if file := os.environ.get(RESUMABLE_FILE):
        Path(file).touch()
