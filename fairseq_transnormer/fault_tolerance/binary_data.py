"""Truncated files of binary data are found at the start, not when they are reached."""

import os
import struct
from pathlib import Path

import numpy as np
from fairseq.data.indexed_dataset import (
    MMapIndexedDataset,
    _code_to_dtype,
    data_file_path,
    index_file_path,
)
from fairseq.utils import split_paths

from ..wrapping import wrap

MAGIC = MMapIndexedDataset.Index._HDR_MAGIC
HEADER = struct.Struct(f"<{len(MAGIC)}sQBQ")


def install() -> None:
    """Look at a file's size whenever fairseq opens it.

    data/indexed_dataset.py, MMapIndexedDataset: what is missing at the end is only
    missed where a batch has it, which may be days later.
    """
    wrap(MMapIndexedDataset, "_do_init", _check_and_open)


def check_shards(data: str, subset: str) -> None:
    """Check all shards of a subset, of which training opens one an epoch.

    Args:
        data: folders, with colons between them, as fairseq takes them.
        subset: such as "train".

    Raises:
        ValueError: as ``check_prefix`` does.
    """
    for folder in map(Path, split_paths(data)):
        for level in ("", "*/"):  # labelled texts have a folder for each column
            for index in sorted(folder.glob(f"{level}{subset}*.idx")):
                check_prefix(str(index.with_suffix("")))


def check_prefix(prefix: str) -> None:
    """Check that PREFIX.idx is complete and PREFIX.bin as long as it says. Fast.

    Raises:
        ValueError: it is not; files in another format, which fairseq has errors for,
            are passed over.
    """
    index, data = index_file_path(prefix), data_file_path(prefix)
    with open(index, "rb") as file:
        header = file.read(HEADER.size)
        if not header.startswith(MAGIC[: len(header)]):
            return
        found = os.path.getsize(index)
        if found < HEADER.size:
            raise _truncated(index, found, f"at least {HEADER.size}")
        _, version, code, lines = HEADER.unpack(header)
        if version != 1 or code not in _code_to_dtype or not lines:
            return
        expected = HEADER.size + lines * (4 + 8)
        if found != expected:
            raise _truncated(index, found, f"{expected} for {lines} lines")
        file.seek(HEADER.size + 4 * (lines - 1))
        (length,) = struct.unpack("<i", file.read(4))
        file.seek(-8, os.SEEK_END)
        (start,) = struct.unpack("<q", file.read(8))
    expected = start + length * np.dtype(_code_to_dtype[code]).itemsize
    found = os.path.getsize(data)
    if found != expected:
        raise _truncated(data, found, f"{expected}, as {Path(index).name} says")


def _check_and_open(open_data, dataset, path):
    check_prefix(path)
    return open_data(dataset, path)


def _truncated(path: str, found: int, expected: str) -> ValueError:
    return ValueError(
        f"{path} has {found} bytes, expected {expected}: truncated or damaged; prepare "
        "the data again (python -m data_prep.verify checks all of a folder)"
    )
