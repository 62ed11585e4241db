"""``train.log`` in a run's folder of checkpoints: what was measured, as JSON lines.

    {"kind": "train_inner", "epoch": 1, "num_updates": 10, "loss": 7.312, ...}
    {"kind": "valid", "epoch": 1, "valid_num_updates": 100, "valid_loss": 6.204, ...}

However a training was started, it appends its records here. Names are those of
fairseq's ``--log-format json``; numbers are numbers, NaN and infinity null. A run that
resumes writes some updates again: of two records of an update the later one counts. One
that begins anew renames the file of a run before it that kept no checkpoint: those
records would stand among its own.
"""

import errno
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from .whole_files import json_text

LOG = "train.log"


def append_record(folder: str | Path, kind: str, values: Mapping[str, Any]) -> None:
    """Append a line to ``folder/train.log``, in one piece.

    A line that a killed writer has left without its end stays as it is, alone.

    Args:
        folder: is there.
        kind: "train_inner", "train", "valid" or another split.
        values: numbers and text by name.
    """
    line = json_text({"kind": kind} | dict(values)).encode() + b"\n"
    with open(Path(folder) / LOG, "a+b", buffering=0) as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        # a full disk may take a part, without an error
        if file.write(line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def put_earlier_aside(folder: str | Path, name: str = LOG) -> None:
    """Rename a file, if it is there, to ``NAME.earlier-1`` or the next.

    A training that begins with its first update finds another run's.
    """
    file = Path(folder) / name
    if file.is_file():
        names = (file.with_name(f"{name}.earlier-{number}") for number in count(1))
        file.rename(next(each for each in names if not each.exists()))
