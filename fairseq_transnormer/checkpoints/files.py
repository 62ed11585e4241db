"""Checkpoints as files: fingerprints, repair of damaged ones, and what they are of."""

import errno
import hashlib
import logging
import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from ..data.fingerprints import file_sha256
from ..data.whole_files import copy_whole, write_whole
from .safe_loading import CheckpointError, is_whole, read_checkpoint

logger = logging.getLogger(__name__)

# what fairseq writes at every save, and resumes from
LAST = "checkpoint_last.pt"
# what write_whole has not finished: TARGET.<32 hexadecimal digits>.tmp
PART = re.compile(r"checkpoint.*\.pt\.[0-9a-f]{32}\.tmp")
# fairseq's own names, without those of shards: others in the folder (an average, a
# pre-trained model) are not states of this run
SAVED = re.compile(r"checkpoint(\d+|_\d+_\d+|_best|\.best_.+_-?\d+(\.\d+)?)\.pt")

ATTEMPTS = 3
SECONDS_BETWEEN_ATTEMPTS = 2.5
# another attempt would end in the same way
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint; the file is the old or the new one at every moment.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    _attempt(path, lambda: write_whole(path, lambda file: torch.save(state, file)))


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copy a checkpoint, as ``write_checkpoint`` writes one."""
    _attempt(target, lambda: copy_whole(source, target))


def _attempt(path: str | Path, act: Callable[[], None]) -> None:
    """fairseq tries again for any reason, at the end of the half file of before."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return act()
        except Exception as error:
            cause = _system_error(error)
            if cause is None:
                raise
            if cause.errno in NO_ROOM or attempt == ATTEMPTS:
                free = shutil.disk_usage(os.path.dirname(path) or ".").free
                raise OSError(
                    cause.errno,
                    f"{path} cannot be written: {cause.strerror}, {free / 1e6:.1f} MB "
                    "are free. Checkpoints written before are untouched; when there is "
                    "room, the same command resumes from the last one",
                ) from None
            logger.warning("%s: %s; trying again", path, cause)
        time.sleep(SECONDS_BETWEEN_ATTEMPTS)


def _system_error(error: BaseException | None) -> OSError | None:
    """The error of the operating system that led to what ``torch.save`` raises."""
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error


def number_of_updates(state: Mapping[str, Any]) -> int:
    """The updates that a checkpoint, as loaded, was saved after."""
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def embedding_rows(weights: Mapping[str, Any]) -> int | None:
    """Rows of a model's embedding of tokens; None where it has no such matrix."""
    name = next((n for n in weights if n.endswith("embed_tokens.weight")), None)
    return len(weights[name]) if name and weights[name].dim() == 2 else None


def fingerprint(path: Path) -> str:
    """What tells a checkpoint's content from another's, whatever its file's name.

    Made of the CRC-32 of the records, which the file lists: fast for large files.
    """
    if not zipfile.is_zipfile(path):
        return file_sha256(path)
    digest = hashlib.sha256()
    with zipfile.ZipFile(path) as archive:
        for record in archive.infolist():
            name = record.filename.partition("/")[2]
            digest.update(f"{name} {record.file_size} {record.CRC}\n".encode())
    return digest.hexdigest()


def repair_last_checkpoint(save_dir: Path) -> Path | None:
    """Replace a damaged ``checkpoint_last.pt``, which is kept under another name.

    Of the others that fairseq has saved, the one with the most updates in it takes its
    place: a file's time is that of its last copy. Damaged ones with more updates are
    kept under other names, too, since fairseq would count them among the newest.

    Returns:
        the checkpoint that it is now a copy of, or None if nothing was wrong.

    Raises:
        ValueError: the folder has no whole checkpoint to put in its place.
    """
    last = save_dir / LAST
    # whole, in a name of its own until the damaged one has given way: the disk may be
    # full, and the process may die
    repaired = last.with_name(f"{LAST}.repaired")
    if not last.exists():
        if not repaired.exists():
            return None
        os.replace(repaired, last)
        return last
    if is_whole(last):
        return None
    whole, damaged = newest_whole(save_dir)
    if whole is None:
        raise ValueError(
            f"{last} is damaged and {save_dir} has no complete checkpoint; "
            "remove it to start anew"
        )
    copy_whole(whole, repaired)
    put_aside([*damaged, last])
    os.replace(repaired, last)
    return whole


def put_aside(damaged: Iterable[Path]) -> None:
    """Keep damaged checkpoints under other names, which fairseq does not count."""
    for path in damaged:
        os.replace(path, path.with_name(f"{path.name}.damaged"))


def newest_whole(save_dir: Path) -> tuple[Path | None, list[Path]]:
    """The whole checkpoint of the most updates, and the damaged ones found on the way.

    Of several copies of one update the latest file is taken.
    """
    updates, damaged = {}, []
    for path in save_dir.glob("checkpoint*.pt"):
        if SAVED.fullmatch(path.name):
            try:
                updates[path] = number_of_updates(read_checkpoint(path, mmap=True))
            except CheckpointError:
                if not is_whole(path):
                    damaged.append(path)
    for path in sorted(
        updates, key=lambda each: (updates[each], each.stat().st_mtime), reverse=True
    ):
        if is_whole(path):
            return path, damaged
        damaged.append(path)
    return None, damaged


def remove_parts(save_dir: Path) -> None:
    """Remove what writers that were killed left; only where no other can be writing."""
    for path in save_dir.glob("checkpoint*.tmp"):
        if PART.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
            logger.info("%s removed: its writer was killed", path)


def check_last_checkpoint(arch: str, save_dir: Path) -> None:
    """Raise ValueError if the run in ``save_dir`` is of another architecture.

    The table runner asks before it starts anything; the start of training looks at
    all settings (training/same_run.py). A damaged checkpoint passes:
    training begins with another one in its place.
    """
    last = save_dir / LAST
    if not last.exists() or not is_whole(last):
        return
    state = read_checkpoint(last, mmap=True, compare_sums=False)
    found = architecture((state.get("cfg") or {}).get("model", {}), arch)
    if found != arch:
        raise ValueError(another_architecture(last, found, arch))


def architecture(model: Mapping[str, Any], default: str | None = None) -> str | None:
    """The name of a model's configuration; fairseq's older ones call it "arch"."""
    return model.get("_name") or model.get("arch") or default


def another_architecture(path: Path | str, found: str | None, arch: str | None) -> str:
    """The message: T1 and T2 have the same parameters by name and shape."""
    return (
        f"{path} is of {found}; allowed with it: the model {found}, or another "
        f"folder (--save-dir) for {arch}"
    )
