"""``data_prep verify``: prepared data that were copied, or lay on a disk for long."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from fairseq_transnormer.data import MANIFEST, REPORT

from .staging import check_files, show_splits


def verify(folder: Annotated[Path, tyro.conf.arg(metavar="DIR")], /) -> None:
    """Check that a folder of prepared data is as it was made.

    The SHA-256 of each file must be that in report.json or manifest.json. The first
    fault ends the check with one line and exit code 2. Token ids of data that other
    programs made are checked by every training.

    Args:
        folder: what was prepared.
    """
    listing = MANIFEST if (folder / MANIFEST).is_file() else REPORT
    check_files(folder, listing)
    show_splits(folder, listing)
    print(f"{folder}: good")
