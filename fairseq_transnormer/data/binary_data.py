"""fairseq's binary data, PREFIX.idx and PREFIX.bin, read without fairseq.

PREFIX.bin has the token ids of all lines, one line after the other. PREFIX.idx has a
header, then for each of the L lines its tokens (int32) and where it starts in the .bin,
in bytes (int64). The ids are not read into memory as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .subword_files import EOS

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
# magic, version, number of the type of the ids, lines
HEADER = struct.Struct(f"<{len(MAGIC)}sQBQ")
# types by their numbers from 1; fairseq's _code_to_dtype
_TYPES = "uint8 int8 int16 int32 int64 float64 float64 uint16 uint32 uint64"
DTYPES = {number: np.dtype(name) for number, name in enumerate(_TYPES.split(), 1)}
# read at once: pages of this many are in memory at most, and stay in the cache
IDS_AT_ONCE = 1 << 24


class AnotherFormatError(ValueError):
    """An .idx of another format, or of numbers that are no ids: not for this reader."""


@dataclass(frozen=True)
class BinaryData:
    """A split whose .idx and .bin agree.

    Attributes:
        prefix: the files' path without .idx and .bin.
        dtype: of the ids in the .bin.
        sizes: tokens of each line, int32 (L,).
        starts: bytes in front of each line in the .bin, int64 (L,).
    """

    prefix: str
    dtype: np.dtype
    sizes: np.ndarray
    starts: np.ndarray

    @property
    def tokens(self) -> int:
        """Tokens of all lines."""
        return int(self.sizes.sum(dtype=np.int64))

    def ids(self) -> np.ndarray:
        """The token ids of all lines, (tokens,), on the disk until they are used."""
        if not self.tokens:
            return np.empty(0, self.dtype)
        return np.memmap(bin_file(self.prefix), self.dtype, "r")

    def lines(self) -> Iterator[np.ndarray]:
        """The token ids of each line."""
        ids, starts = self.ids(), self.starts // self.dtype.itemsize
        for start, size in zip(starts, self.sizes, strict=True):
            yield ids[start : start + size]

    def line_of(self, token: int) -> int:
        """The line, from 0, that a token of all lines is in."""
        at = token * self.dtype.itemsize
        return int(np.searchsorted(self.starts, at, side="right")) - 1

    def fault(self, size: int, control: Sequence[int]) -> str | None:
        """A sentence on the first id that no line of text has, if there is one.

        Args:
            size: entries of the dictionary.
            control: ids that no text gives; EOS may end a line.
        """
        starts = self.starts
        for first, part in in_parts(self.ids()):
            wrong = (part < 0) | (part >= size) | np.isin(part, control)
            places = np.flatnonzero(wrong) + first
            ends = (places + 1) * self.dtype.itemsize
            next_lines = np.searchsorted(starts, ends).clip(max=len(starts) - 1)
            is_end = (starts[next_lines] == ends) | (places + 1 == self.tokens)
            for place in places[(part[places - first] != EOS) | ~is_end][:1]:
                token, line = part[place - first], self.line_of(place) + 1
                text = f"ids of text, {EOS} at the end of a line alone"
                allowed = text if token in control else f"0 to {size - 1}"
                where = f"{bin_file(self.prefix)}: token {place} (line {line})"
                return f"{where} has the id {token}; allowed: {allowed}"
        return None


def bin_file(prefix: str | Path) -> Path:
    """PREFIX.bin."""
    return Path(f"{prefix}.bin")


def read_binary_data(prefix: str | Path) -> BinaryData:
    """Read PREFIX.idx and check it, and that PREFIX.bin is as long as it says.

    Raises:
        AnotherFormatError: the .idx is not of fairseq's mmap format, or not of ids.
        ValueError: a file is truncated or damaged.
    """
    index = Path(f"{prefix}.idx")
    with index.open("rb") as file:
        header = file.read(HEADER.size)
    if not MAGIC.startswith(magic := header[: len(MAGIC)]):
        raise AnotherFormatError(f"{index} must start with {MAGIC!r}, got {magic!r}")
    _, version, number, lines = HEADER.unpack(header.ljust(HEADER.size, b"\0"))
    _check_size(index, HEADER.size + lines * (4 + 8))
    dtype = DTYPES.get(number, np.dtype(float))
    if version != VERSION or dtype.kind not in "iu":
        raise AnotherFormatError(
            f"{index}: version {version} with numbers of type {number} has no token ids"
        )
    content = np.memmap(index, np.uint8, "r")[HEADER.size :]
    sizes, starts = content[: 4 * lines].view("<i4"), content[4 * lines :].view("<i8")
    ends = np.append(0, sizes.cumsum(dtype=np.int64) * dtype.itemsize)
    wrong = np.flatnonzero((sizes < 0) | (starts != ends[:-1]))
    if len(wrong):
        raise ValueError(
            f"{index}: line {wrong[0] + 1} does not start where the one before it "
            "ends: damaged; prepare the data again"
        )
    _check_size(bin_file(prefix), int(ends[-1]))
    return BinaryData(str(prefix), dtype, sizes, starts)


def _check_size(path: Path, expected: int) -> None:
    found = path.stat().st_size
    if found != expected:
        raise ValueError(
            f"{path} has {found} bytes, expected {expected} by its .idx: truncated or "
            "damaged; prepare the data again (python -m data_prep verify checks all of "
            "a folder)"
        )


def in_parts(ids: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first, ids[first : first + IDS_AT_ONCE]) of all ids in their order."""
    for first in range(0, len(ids), IDS_AT_ONCE):
        yield first, ids[first : first + IDS_AT_ONCE]
