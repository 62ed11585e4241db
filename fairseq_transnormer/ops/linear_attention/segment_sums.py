"""sum_j k_j v_j^T over each segment, in float32.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..kernels.launch import launch, strides
from ..kernels.tiles import (
    from_column,
    head_rows,
    kept_rows,
    load_tile,
    mixed_dot,
    some_chunks,
    state_offsets,
)
from .launch_table import WIDEST_TILE, launch_options


@triton.jit(do_not_specialize=["length", "heads", "segments", "segment"])
def segment_sums_kernel(
    key,
    value,
    pads,
    sums,
    strides,
    length,
    heads,
    segments,
    segment,
    D: tl.constexpr,
    E: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """strides: of key and value. sums: (B * H, segments, D, E).

    Grid: (B * H * segments, E / TILE).
    """
    program = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE
    sequence = program // segments
    row, head = sequence // heads, sequence % heads
    key_strides, value_strides = strides
    key = head_rows(key, key_strides, row, head)
    value = from_column(head_rows(value, value_strides, row, head), column)
    if pads is not None:
        pads += row * length
    first = (program % segments) * segment
    state = tl.zeros((D, TILE), tl.float32)
    for chunk in range(0, some_chunks(first, first + segment, length, CHUNK)):
        start = first + chunk * CHUNK
        keep = kept_rows(start, length, pads, CHUNK)
        k = load_tile(key, start, keep, CHUNK, D)
        v = load_tile(value, start, keep, CHUNK, TILE)
        state = mixed_dot(tl.trans(k), v, state, PRECISION)
    tl.store(sums + program * D * E + column + state_offsets(D, TILE, E), state)


def segment_sums(
    key: Tensor, value: Tensor, pads: Tensor | None, segment: int
) -> Tensor:
    """sum_j k_j v_j^T of each segment: (B * H, segments, D, E), float32.

    Args:
        key, value: (B, N, H, D) and (B, N, H, E).
        pads: uint8 (B, N), not 0 where a token takes no part, or None.
        segment: tokens of a segment.
    """
    batch, length, heads, width = key.shape
    value_width = value.shape[-1]
    segments = triton.cdiv(length, segment)
    shape = (batch * heads, segments, width, value_width)
    sums = key.new_empty(shape, dtype=torch.float32)
    tile = min(value_width, WIDEST_TILE)
    launch(
        segment_sums_kernel,
        (batch * heads * segments, value_width // tile),
        key,
        value,
        pads,
        sums,
        strides((key, value)),
        length,
        heads,
        segments,
        segment,
        D=width,
        E=value_width,
        TILE=tile,
        **launch_options("sums", key, value),
    )
    return sums
