"""Checkpoints as files: written whole or not at all, looked at before they are read."""

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import torch


def is_whole(path: Path) -> bool:
    """Whether all of a checkpoint is as it was written, by its records' CRC-32.

    ``torch.load`` does not look at them: a flipped bit would become a weight. It is
    stricter about headers than Python's zipfile, so its reader is asked, too.
    """
    try:
        torch._C.PyTorchFileReader(os.fspath(path))
        with zipfile.ZipFile(path) as archive:
            records = archive.namelist()
            has_pickle = any(name.endswith("/data.pkl") for name in records)
            return has_pickle and archive.testzip() is None
    except PermissionError:
        raise
    except Exception:  # a damaged header makes zipfile raise almost anything
        return False


def repair_last_checkpoint(save_dir: Path) -> Path | None:
    """Replace a damaged ``checkpoint_last.pt``, which is kept under another name.

    Returns:
        the checkpoint that it is now a copy of, or None if nothing was wrong.

    Raises:
        ValueError: the folder has no whole checkpoint to put in its place.
    """
    last = save_dir / "checkpoint_last.pt"
    # whole, in a name of its own until the damaged one has given way: the disk may be
    # full, and the process may die
    repaired = last.with_name("checkpoint_last.pt.repaired")
    if not last.exists():
        if not repaired.exists():
            return None
        os.replace(repaired, last)
        return last
    if is_whole(last):
        return None
    others = {path: path.stat().st_mtime for path in save_dir.glob("checkpoint*.pt")}
    others.pop(last)
    newest_first = sorted(others, key=others.get, reverse=True)
    whole = next(filter(is_whole, newest_first), None)
    if whole is None:
        raise ValueError(
            f"{last} is damaged and {save_dir} has no complete checkpoint; "
            "remove it to start anew"
        )
    copy_whole(whole, repaired)
    os.replace(last, last.with_name("checkpoint_last.pt.damaged"))
    os.replace(repaired, last)
    return whole


def copy_whole(source: str | Path, target: str | Path) -> None:
    """Copy a file so that ``target`` is the old or the new one at every moment."""

    def write(file: BinaryIO) -> None:
        with open(source, "rb") as original:
            shutil.copyfileobj(original, file, 1 << 24)

    write_whole(target, write)


def write_whole(target: str | Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file so that it is the old or the new one at every moment.

    What was written of a new one that fails is removed. The file is on the disk, not
    only in the machine's memory, before it takes its name.
    """
    part = f"{os.fspath(target)}.tmp"
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    folder = os.open(os.path.dirname(part) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
