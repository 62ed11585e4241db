"""How chunked attention in torch is cut: chunks, segments of them, and tiles.

A segment is what the backward pass recomputes from one kept state. A tile, some rows of
the batch over some chunks of a segment, is one batch of matrix products.

Letters: B batch, R rows of a tile, H heads, N length, G chunks of a tile, C chunk size,
D head width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_SIZE = 64
CHUNKS_PER_SEGMENT = 16
# elements of one operand of a tile on a CPU: all of a tile's fit a cache of 1 to 2 MiB,
# and its products outweigh what calling them costs
TILE_ELEMENTS = 2**15


class Tiling(NamedTuple):
    """The cut of sequences (B, N).

    chunk_size: tokens. rows_at_once, chunks_at_once: a tile's.
    """

    batch: int
    length: int
    chunk_size: int
    rows_at_once: int
    chunks_at_once: int

    @classmethod
    def of(cls, query: Tensor, value: Tensor, chunk_size: int) -> Tiling:
        """For queries (B, N, H, D) and values; chunks no longer than the sequences.

        Tiles fit a CPU's cache. A GPU takes a segment of all rows: fewer launches.
        """
        batch, length, heads, width = query.shape
        chunk_size = min(chunk_size, length)
        # a batch may be empty
        rows, chunks = max(1, batch), CHUNKS_PER_SEGMENT
        if query.device.type == "cpu":
            elements = heads * chunk_size * max(width, value.shape[-1])
            rows = min(rows, max(1, TILE_ELEMENTS // elements))
            chunks = min(chunks, max(1, TILE_ELEMENTS // (rows * elements)))
        return cls(batch, length, chunk_size, rows, chunks)

    def segments(self) -> list[slice]:
        """Of the length."""
        return _slices(self.length, self.chunk_size * CHUNKS_PER_SEGMENT)

    def rows(self) -> list[slice]:
        """Of the batch, for one tile each."""
        return _slices(self.batch, self.rows_at_once)

    def tiles(self, segment: slice) -> list[slice]:
        """Of the chunks of a segment."""
        chunks = -(-(segment.stop - segment.start) // self.chunk_size)
        return _slices(chunks, self.chunks_at_once)


def _slices(stop: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, stop)) for i in range(0, stop, step)]


def in_chunks(x: Tensor, chunk_size: int) -> Tensor:
    """(R, N, H, D) -> (G, R, H, C, D) with a tail of zeros, which adds nothing.

    A view where there is no tail.
    """
    tail = -x.shape[1] % chunk_size
    if tail:
        x = F.pad(x, (0, 0, 0, 0, 0, tail))
    return x.unflatten(1, (-1, chunk_size)).permute(1, 0, 3, 2, 4)


def matrices(chunks: Tensor, dtype: torch.dtype) -> Tensor:
    """(G, R, H, C, D) -> (GRH, C, D), a contiguous copy."""
    chunks = chunks.to(dtype, copy=True, memory_format=torch.contiguous_format)
    return chunks.view(-1, *chunks.shape[-2:])


class ChunkedTarget:
    """A tensor (R, N, H, D) that is written by chunks, without what is past its end."""

    def __init__(self, target: Tensor, chunk_size: int):
        self._target, self._padded = target, target
        rows, length, *rest = target.shape
        tail = -length % chunk_size
        if tail:
            self._padded = target.new_empty((rows, length + tail, *rest))
        self._chunks = in_chunks(self._padded, chunk_size)

    def write(self, tile: slice, matrices: Tensor) -> None:
        """Write the chunks of a tile, (GRH, C, D)."""
        chunks = self._chunks[tile]
        chunks.copy_(matrices.view(chunks.shape))

    def finish(self) -> None:
        """To be called when all tiles are written."""
        if self._padded is not self._target:
            self._target.copy_(self._padded[:, : self._target.shape[1]])
