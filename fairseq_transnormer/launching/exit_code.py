"""How a training that was asked to stop reports it."""

import os
from pathlib import Path

# "temporary failure, try again" of sysexits.h, 75: the same command resumes
EXIT_RESUMABLE = os.EX_TEMPFAIL
# names a file to make, for who starts workers through torchrun, which ends with 1 then
RESUMABLE_FILE = "RESUMABLE_FILE"


def mark_resumable() -> None:
    """Make the file that the environment names, if it names one."""
    if file := os.environ.get(RESUMABLE_FILE):
        Path(file).touch()
