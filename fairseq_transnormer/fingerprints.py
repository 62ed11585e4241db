"""Fingerprints of files and of a checkpoint's weights: the SHA-256 of what is in them.

Fingerprints are remembered within a process for as long as the file is untouched.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from .safe_loading import CheckpointError, read_checkpoint

# of a fingerprint, in names and messages
SHOWN = 12
# device, inode, size, time of the content and of the inode: no writer keeps them all
Mark = tuple[int, int, int, int, int]

_known: dict[tuple[str, str], tuple[Mark, str]] = {}


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, 64 hexadecimal digits, read anew at every call.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def file_fingerprint(path: Path) -> str:
    """SHA-256 of a file, as ``file_sha256``.

    Raises:
        OSError: it cannot be read.
    """
    return _remembered("file", path, file_sha256)


def weights_fingerprint(path: Path | str) -> str:
    """SHA-256 of a checkpoint's model, 64 hexadecimal digits.

    Of the names, dtypes, shapes and bytes of all its tensors, in the order of their
    names: the optimizer's state, the settings and the place of the file do not count.

    Raises:
        CheckpointError: there is no such file, or it is no checkpoint of fairseq.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint file")
    return _remembered("weights", path, _hash_weights)


def mark_of(path: Path) -> Mark:
    """What changes whenever a file is written or replaced."""
    found = path.stat()
    return (
        *(found.st_dev, found.st_ino, found.st_size),
        *(found.st_mtime_ns, found.st_ctime_ns),
    )


def shortened(fingerprint: str) -> str:
    """The first digits of a fingerprint, for people."""
    return fingerprint[:SHOWN]


def _remembered(kind: str, path: Path, compute: Callable[[Path], str]) -> str:
    key = (kind, os.path.abspath(path))
    # taken before the file is read: one that is written meanwhile is read again
    mark = mark_of(path)
    if _known.get(key, (None,))[0] != mark:
        _known[key] = (mark, compute(path))
    return _known[key][1]


def _hash_weights(path: Path) -> str:
    weights = read_checkpoint(path, mmap=True).get("model")
    if not isinstance(weights, dict) or not weights:
        raise CheckpointError(f"{path}: no checkpoint of fairseq (no 'model' in it)")
    digest = hashlib.sha256()
    for name in sorted(weights, key=str):
        tensor = weights[name]
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise CheckpointError(f"{path}: model[{name!r}] is no tensor")
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
