"""Damaged binary data are found at the start, not when training reaches them."""

import os
import shlex
import struct
from functools import lru_cache
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import (
    MMapIndexedDataset,
    _code_to_dtype,
    data_file_path,
    index_file_path,
)
from fairseq.utils import split_paths

from ..checkpoints.identity import check_dictionary_file, task_dictionary
from .workers import call_on_first_rank

MAGIC = MMapIndexedDataset.Index._HDR_MAGIC
HEADER = struct.Struct(f"<{len(MAGIC)}sQBQ")
# read at once: pages of this many are in memory at most, and stay in the cache
IDS_AT_ONCE = 1 << 24
LABELS = "label"


def check_name_for_shell(build_index, dataset, path: str):
    """Around data/fasta_dataset.py, _build_index: ``cat {path} | ...`` in a shell.

    A checkpoint can name the format of the data and parts of the files' names.

    Raises:
        ValueError: the name has characters that mean something to a shell.
    """
    if shlex.quote(path) != path:
        raise ValueError(
            f"{path!r}: fairseq gives the name of a FASTA file to a shell; allowed: "
            "letters, digits and @ % + = : , . / - _"
        )
    return build_index(dataset, path)


def check_training_data(trainer) -> None:
    """Check all shards of the training data, on the first rank.

    Raises:
        ValueError: as ``check_shards`` does.
    """
    data = getattr(trainer.cfg.task, "data", None)
    if data:
        subset = trainer.cfg.dataset.train_subset
        call_on_first_rank(trainer, check_shards, trainer.task, data, subset)


def check_shards(task, data: str, subset: str) -> None:
    """Check all shards of a subset, of which training opens one an epoch.

    Args:
        task: fairseq's, which has the dictionaries.
        data: folders, with colons between them, as fairseq takes them.
        subset: such as "train".

    Raises:
        ValueError: as ``check_prefix`` and ``check_token_ids`` do.
    """
    for folder in map(Path, split_paths(data)):
        for level in ("", "*/"):  # labelled texts have a folder for each column
            for index in sorted(folder.glob(f"{level}{subset}*.idx")):
                prefix = str(index.with_suffix(""))
                check_prefix(prefix)
                # train.en-de.en may have another dictionary than train.en-de.de; they
                # are looked at when they are opened
                if index.stem.removeprefix(subset).isdecimal() or index.stem == subset:
                    is_label = level and index.parent.name == LABELS
                    dictionary = (
                        getattr(task, "label_dictionary", None)
                        if is_label
                        else task_dictionary(task)
                    )
                    if dictionary is not None:
                        check_token_ids(prefix, dictionary)


def check_prefix(prefix: str) -> None:
    """Check that PREFIX.idx is as it was written and PREFIX.bin as long as it says.

    Raises:
        ValueError: it is not; files in another format, which fairseq has errors for,
            are passed over.
    """
    index, data = index_file_path(prefix), data_file_path(prefix)
    _check_prefix(prefix, _version(index), _version(data))


def check_token_ids(prefix: str, dictionary: Dictionary) -> None:
    """Check that all ids of PREFIX.bin are in a dictionary; reads all of the file.

    fairseq does the same when it opens a file, so that it comes from the disk once.

    Args:
        prefix: of files that ``check_prefix`` has found to be right.
        dictionary: what the ids are numbers of.

    Raises:
        ValueError: an id is beyond it; the file, the id and the dictionary are named.
    """
    version = _version(data_file_path(prefix))
    size = len(dictionary)
    if _largest_id(prefix, version) < size:
        return
    where, line, found = _first_beyond(prefix, size)
    file = getattr(dictionary, "file", None) or "the dictionary"
    raise ValueError(
        f"{data_file_path(prefix)}: token {where} (line {line + 1}) has the id "
        f"{found}; allowed: 0 to {size - 1}, since {file} has {size} symbols with "
        f"{dictionary.nspecial} special ones. Prepare the data again, or put the "
        "dictionary there that they were made with"
    )


def _version(path: str) -> tuple[int, int]:
    """Changes when the file is written again."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=4096)
def _check_prefix(prefix: str, *versions: tuple[int, int]) -> None:
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
    sizes, starts = _sizes_and_starts(index, lines)
    end = _check_lines(index, sizes, starts, np.dtype(_code_to_dtype[code]).itemsize)
    found = os.path.getsize(data)
    if found != end:
        raise _truncated(data, found, f"{end}, as {Path(index).name} says")


def _sizes_and_starts(index: str, lines: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of each line, int32, and bytes in front of it, int64; not in memory."""
    content = np.memmap(index, np.uint8, "r", HEADER.size)
    return content[: 4 * lines].view("<i4"), content[4 * lines :].view("<i8")


def _check_lines(
    index: str, sizes: np.ndarray, starts: np.ndarray, itemsize: int
) -> int:
    """The bytes of all lines, which stand one after the other."""
    end = 0
    for first in range(0, len(sizes), IDS_AT_ONCE):
        part = slice(first, first + IDS_AT_ONCE)
        lengths = sizes[part].astype(np.int64) * itemsize
        ends = lengths.cumsum() + end
        wrong = np.flatnonzero((lengths < 0) | (starts[part] != ends - lengths))
        if len(wrong):
            line = first + int(wrong[0])
            raise ValueError(
                f"{index}: line {line + 1} has {sizes[line]} tokens and starts at byte "
                f"{starts[line]}; allowed: 0 tokens or more, from byte "
                f"{ends[wrong[0]] - lengths[wrong[0]]} on, where the line before ends. "
                "The file is damaged; prepare the data again"
            )
        end = int(ends[-1])
    return end


def _ids(prefix: str) -> np.ndarray | None:
    """All ids of PREFIX.bin, not in memory; None if they are no whole numbers."""
    with open(index_file_path(prefix), "rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        return None
    dtype = np.dtype(_code_to_dtype[HEADER.unpack(header)[2]])
    if dtype.kind not in "iu" or not os.path.getsize(data_file_path(prefix)):
        return None
    return np.memmap(data_file_path(prefix), dtype, "r")


@lru_cache(maxsize=4096)
def _largest_id(prefix: str, version: tuple[int, int]) -> int:
    """-1 if there is none. A negative one counts as very large."""
    ids = _ids(prefix)
    if ids is None:
        return -1
    ids = ids.view(f"u{ids.dtype.itemsize}")
    starts = range(0, len(ids), IDS_AT_ONCE)
    return max(int(ids[start : start + IDS_AT_ONCE].max()) for start in starts)


def _first_beyond(prefix: str, size: int) -> tuple[int, int, int]:
    """Where the first id is that is beyond, in which line, and the id."""
    ids = _ids(prefix)
    for start in range(0, len(ids), IDS_AT_ONCE):
        part = ids[start : start + IDS_AT_ONCE]
        beyond = np.flatnonzero((part < 0) | (part >= size))
        if len(beyond):
            break
    where = start + int(beyond[0])
    index = index_file_path(prefix)
    lines = (os.path.getsize(index) - HEADER.size) // (4 + 8)
    _, starts = _sizes_and_starts(index, lines)
    line = int(np.searchsorted(starts, where * ids.dtype.itemsize, side="right")) - 1
    return where, line, int(ids[where])


def check_index_and_open(open_data, dataset, path):
    """data/indexed_dataset.py, MMapIndexedDataset._do_init."""
    check_prefix(path)
    return open_data(dataset, path)


def note_dictionary_file(add_from_file, dictionary, file):
    """data/dictionary.py, add_from_file: messages shall name it."""
    if isinstance(file, str):
        dictionary.file = file
    return add_from_file(dictionary, file)


def check_ids_and_load(load, path, dictionary=None, *arguments, **keywords):
    """data/data_utils.py, load_indexed_dataset: where tasks open a split."""
    dataset = load(path, dictionary, *arguments, **keywords)
    if isinstance(dictionary, Dictionary):
        file = getattr(dictionary, "file", None)
        if file and Path(file).is_file():
            check_dictionary_file(Path(file))
        for part in getattr(dataset, "datasets", [dataset]):
            if isinstance(part, MMapIndexedDataset):
                check_token_ids(part._path, dictionary)
    return dataset


def _truncated(path: str, found: int, expected: str) -> ValueError:
    return ValueError(
        f"{path} has {found} bytes, expected {expected}: truncated or damaged; prepare "
        "the data again (python -m data_prep verify checks all of a folder)"
    )
