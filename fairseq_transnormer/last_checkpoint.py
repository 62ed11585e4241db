"""The checkpoint that a run goes on from: is it whole, and is it of this run."""

import os
import shutil
import zipfile
from pathlib import Path


def repair_last_checkpoint(save_dir: Path) -> Path | None:
    """Replace a truncated ``checkpoint_last.pt``; it is kept under another name.

    Returns:
        the checkpoint that it is now a copy of, or None if nothing was wrong.

    Raises:
        ValueError: the folder has no complete checkpoint to put in its place.
    """
    last = save_dir / "checkpoint_last.pt"
    if not last.exists() or zipfile.is_zipfile(last):
        return None
    complete = [
        path
        for path in save_dir.glob("checkpoint*.pt")
        if path != last and zipfile.is_zipfile(path)
    ]
    if not complete:
        raise ValueError(
            f"{last} is damaged and {save_dir} has no complete checkpoint; "
            "remove it to start anew"
        )
    newest = max(complete, key=lambda path: path.stat().st_mtime)
    copy = last.with_name("checkpoint_last.pt.copy")
    shutil.copyfile(newest, copy)
    os.replace(last, last.with_name("checkpoint_last.pt.damaged"))
    os.replace(copy, last)
    return newest


def check_last_checkpoint(arch: str, save_dir: Path) -> None:
    """Raise ValueError if the run in ``save_dir`` is of another architecture.

    T1 and T2 have the same parameters by name and shape: fairseq would go on.
    """
    from .safe_loading import read_checkpoint

    last = save_dir / "checkpoint_last.pt"
    if not last.exists():
        return
    state = read_checkpoint(last, mmap=True)
    found = (state.get("cfg") or {}).get("model", {}).get("_name", arch)
    if found != arch:
        raise ValueError(
            f"{last} is of {found}; allowed with it: {found}, or another folder for "
            f"{arch}"
        )
