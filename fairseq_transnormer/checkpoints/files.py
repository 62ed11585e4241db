"""Files of checkpoints: fingerprints, repair of damaged ones, architectures."""

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

# the file that fairseq writes at every save, and resumes from
LAST = "checkpoint_last.pt"
# unfinished files of write_whole: TARGET.<32 hexadecimal digits>.tmp
PART = re.compile(r"checkpoint.*\.pt\.[0-9a-f]{32}\.tmp")
# fairseq's names, without shards: other files in the folder (an average, a pre-trained
# model) are not states of this run
SAVED = re.compile(r"checkpoint(\d+|_\d+_\d+|_best|\.best_.+_-?\d+(\.\d+)?)\.pt")

ATTEMPTS = 3
SECONDS_BETWEEN_ATTEMPTS = 2.5
# another attempt would end in the same way
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint; at any time the file is the complete old or new one.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    _attempt(path, lambda: write_whole(path, lambda file: torch.save(state, file)))


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copy a checkpoint as safely as ``write_checkpoint`` writes one."""
    _attempt(target, lambda: copy_whole(source, target))


def _attempt(path: str | Path, act: Callable[[], None]) -> None:
    """Write, and try again if that may help. fairseq would append to half a file."""
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
                    "are free. Earlier checkpoints are unchanged. When there is space, "
                    "the same command resumes from the last one",
                ) from None
            logger.warning("%s: %s; trying again", path, cause)
        time.sleep(SECONDS_BETWEEN_ATTEMPTS)


def _system_error(error: BaseException | None) -> OSError | None:
    """The operating system's error that an error of ``torch.save`` hides."""
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error


def number_of_updates(state: Mapping[str, Any]) -> int:
    """The number of updates of a loaded checkpoint."""
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def embedding_rows(weights: Mapping[str, Any]) -> int | None:
    """Rows of a model's token embedding; None if it has none."""
    name = next((n for n in weights if n.endswith("embed_tokens.weight")), None)
    return len(weights[name]) if name and weights[name].dim() == 2 else None


def fingerprint(path: Path) -> str:
    """An identifier of a checkpoint's content, independent of the file's name.

    It is computed from the CRC-32 of records in the file's list: fast for large files.
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

    It is replaced by the checkpoint of fairseq with the most updates; file times change
    with copies. Damaged ones with more updates are also kept under other names, since
    fairseq would count them among the newest.

    Returns:
        the checkpoint that was copied, or None if nothing was damaged.

    Raises:
        ValueError: the folder has no undamaged checkpoint.
    """
    last = save_dir / LAST
    # a complete copy under another name comes first: the disk may be full, and the
    # process may die
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
            "remove it to start again"
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
    """The undamaged checkpoint with the most updates, and damaged ones with more.

    Among copies of one update the latest file counts.
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
    """Remove files of killed writers; call it only if no other process can write."""
    for path in save_dir.glob("checkpoint*.tmp"):
        if PART.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
            logger.info("%s removed: its writer was killed", path)


def architecture(model: Mapping[str, Any], default: str | None = None) -> str | None:
    """The name of a model's configuration; fairseq's older ones call it "arch"."""
    return model.get("_name") or model.get("arch") or default


def another_architecture(path: Path | str, found: str | None, arch: str | None) -> str:
    """The message: T1 and T2 have the same parameters by name and shape."""
    return (
        f"{path} is of {found}; allowed with it: the model {found}, or another "
        f"folder (--save-dir) for {arch}"
    )
