"""Inside the causal kernels: one segment of one of their tensors, chunk by chunk.

Letters, and what a, b, c and y are: ``causal_kernels``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..tiles import (
    add_states,
    inside_rows,
    kept_rows,
    load_tile,
    mixed_dot,
    some_chunks,
    state_offsets,
    store_tile,
)


@triton.jit
def write_segment(
    rows,
    reverse,
    transposed,
    pads,
    outside,
    present,
    sums,
    total,
    totals,
    column,
    sequence,
    index,
    lengths,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write segment ``index`` of y, as ``causal_kernels`` says.

    rows: of a, b, c and y; c and y from ``column`` on.
    reverse: whether y_i is a sum over j >= i. transposed: whether its states are stored
        transposed, as those of dQ and dK are.
    outside, present: the state that the tokens start from, None for zero, and whether
        this y has it.
    sums: sum_j b_j c_j^T of each segment; None where there is one segment.
    total, totals: where the state after all tokens goes, or None, and whether this y
        writes it.
    lengths: tokens, segments, and tokens of a segment.
    WIDTH, FULL: of b and of c.
    """
    length, segments, segment = lengths
    SIZE: tl.constexpr = WIDTH * FULL
    if outside is not None:
        outside += sequence * SIZE
    if sums is not None:
        sums += sequence * segments * SIZE
    first = index * segment
    low = tl.where(reverse, index + 1, 0)
    high = tl.where(reverse, segments, index)
    if transposed:
        state = _states_before(
            outside, present, sums, low, high, column, WIDTH, FULL, TILE, True
        )
    else:
        state = _states_before(
            outside, present, sums, low, high, column, WIDTH, FULL, TILE, False
        )
    chunks = some_chunks(first, first + segment, length, CHUNK)
    for chunk in range(0, chunks):
        state = _write_chunk(
            rows,
            reverse,
            pads,
            first + tl.where(reverse, chunks - 1 - chunk, chunk) * CHUNK,
            length,
            state,
            WIDTH=WIDTH,
            TILE=TILE,
            CHUNK=CHUNK,
            PRECISION=PRECISION,
        )
    if total is not None:
        if totals & (index == tl.where(reverse, 0, segments - 1)):
            offsets = state_offsets(WIDTH, TILE, FULL)
            tl.store(total + sequence * SIZE + column + offsets, state)


@triton.jit
def _states_before(
    outside,
    present,
    sums,
    low,
    high,
    column,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """outside and the sums of segments low ... high - 1: (WIDTH, TILE), float32.

    TRANSPOSED: they are stored as (FULL, WIDTH). They are added up as they stand, so
    that loads are wide.
    """
    if TRANSPOSED:
        offsets = column * WIDTH + state_offsets(TILE, WIDTH, WIDTH)
        state = tl.zeros((TILE, WIDTH), tl.float32)
    else:
        offsets = column + state_offsets(WIDTH, TILE, FULL)
        state = tl.zeros((WIDTH, TILE), tl.float32)
    if outside is not None:
        state += tl.load(outside + offsets, mask=present, other=0.0)
    if sums is not None:
        state = add_states(state, sums, low, high, offsets, WIDTH * FULL)
    if TRANSPOSED:
        state = tl.trans(state)
    return state


@triton.jit
def _write_chunk(
    rows,
    reverse,
    pads,
    start,
    length,
    state,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write a chunk of y; returns the state after it."""
    a, b, c, y = rows
    inside = inside_rows(start, length, CHUNK)
    keep_written = inside
    keep_summed = inside
    if pads is not None:
        # forwards b and c belong to keys and values; in reverse a and y do
        kept = kept_rows(start, length, pads, CHUNK)
        keep_written = tl.where(reverse, kept, inside)
        keep_summed = tl.where(reverse, inside, kept)
    a_tile = load_tile(a, start, keep_written, CHUNK, WIDTH)
    b_tile = load_tile(b, start, keep_summed, CHUNK, WIDTH)
    c_tile = load_tile(c, start, keep_summed, CHUNK, TILE)
    index = tl.arange(0, CHUNK)
    index = tl.where(reverse, CHUNK - 1 - index, index)
    visible = index[:, None] >= index[None, :]
    scores = tl.zeros((CHUNK, CHUNK), tl.float32)
    tile = tl.zeros((CHUNK, TILE), tl.float32)
    scores = mixed_dot(a_tile, tl.trans(b_tile), scores, PRECISION)
    scores = tl.where(visible, scores, 0.0)
    tile = mixed_dot(a_tile, state, tile, PRECISION)
    tile = mixed_dot(scores, c_tile, tile, PRECISION)
    state = mixed_dot(tl.trans(b_tile), c_tile, state, PRECISION)
    store_tile(tile, y, start, inside, keep_written, CHUNK, TILE)
    return state
