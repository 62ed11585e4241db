"""How a training that was asked to stop says so."""

import os
from pathlib import Path

# "temporary failure, try again" of sysexits.h, 75: the same command resumes
MORE_TO_DO = os.EX_TEMPFAIL
# names a file to make, for who starts workers through torchrun, which ends with 1 then
FILE_OF_MORE_TO_DO = "MORE_TO_DO_FILE"


def note_more_to_do() -> None:
    """Make the file that the environment names, if it names one."""
    if file := os.environ.get(FILE_OF_MORE_TO_DO):
        Path(file).touch()
