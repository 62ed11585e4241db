"""Kernel: sum_j phi(k_j) v_j^T over each segment of the tokens, in float32."""

import triton
import triton.language as tl

from .linear_attention_tiles import (
    head_offset,
    load_tile,
    mixed_dot,
    state_offsets,
)


@triton.jit(do_not_specialize=["length", "segments", "segment"])
def segment_sums_kernel(
    key,
    value,
    pads,
    sums,
    key_stride_b,
    key_stride_n,
    key_stride_h,
    value_stride_b,
    value_stride_n,
    value_stride_h,
    length,
    heads,
    segments,
    segment,
    D: tl.constexpr,
    E: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PHI: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """sums: (B * H, segments, D, E). Grid: (B * H * segments, E / TILE)."""
    program = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE
    sequence = program // segments
    key += head_offset(sequence, heads, key_stride_b, key_stride_h)
    value += head_offset(sequence, heads, value_stride_b, value_stride_h) + column
    if pads is not None:
        pads += (sequence // heads) * length
    first = (program % segments) * segment
    state = tl.zeros((D, TILE), tl.float32)
    for start in range(first, tl.minimum(first + segment, length), CHUNK):
        k = load_tile((key, key_stride_n), start, length, pads, CHUNK, D, PHI)
        v = load_tile(
            (value, value_stride_n), start, length, pads, CHUNK, TILE, "identity"
        )
        state = mixed_dot(tl.trans(k), v, state, PRECISION)
    tl.store(sums + program * D * E + column + state_offsets(E, 1, D, TILE), state)
