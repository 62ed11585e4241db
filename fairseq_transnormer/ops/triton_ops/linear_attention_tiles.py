"""Tiles of linear attention inside a kernel: loading, multiplying, storing.

A tile is ROWS tokens of one head. ``rows`` stands for a pair: the pointer to the
head's first token, at the tile's first column, and the stride from token to token.
``start`` is the tile's first token, in int64.
"""

import triton
import triton.language as tl

from .kernel_language import dot, feature_map, feature_map_derivative


@triton.jit
def head_offset(sequence, heads, stride_batch, stride_head):
    """Offset of row and head number ``sequence`` (int64) in a (B, N, H, D) tensor."""
    return (sequence // heads) * stride_batch + (sequence % heads) * stride_head


@triton.jit
def kept_rows(start, length, pads, ROWS: tl.constexpr):
    """Which of the tile's tokens are there and are no pads."""
    tokens = start + tl.arange(0, ROWS)
    keep = tokens < length
    if pads is not None:
        keep = keep & (tl.load(pads + tokens, mask=keep, other=1) == 0)
    return keep


@triton.jit
def load_tile(
    rows,
    start,
    length,
    pads,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    PHI: tl.constexpr,
):
    """phi of the tile in its own dtype; zeros, and never phi(0), where no token is."""
    pointer, stride = rows
    keep = kept_rows(start, length, pads, ROWS)[:, None]
    offsets = tl.arange(0, ROWS)[:, None] * stride + tl.arange(0, WIDTH)[None, :]
    tile = tl.load(pointer + start * stride + offsets, mask=keep, other=0.0)
    if PHI != "identity":
        mapped = feature_map(tile.to(tl.float32), PHI)
        if PHI == "1+elu":
            mapped = tl.where(keep, mapped, 0.0)
        tile = mapped.to(tile.dtype)
    return tile


@triton.jit
def store_tile(
    tile,
    rows,
    start,
    length,
    pads,
    mapped,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    PHI: tl.constexpr,
):
    """Store the tile, with zeros at pads.

    mapped: None, or the rows that the tile is the gradient of phi of; then phi' is
        applied.
    """
    pointer, stride = rows
    index = tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, WIDTH)[None, :]
    inside = start + index < length
    if mapped is not None and PHI != "identity":
        x, x_stride = mapped
        x += start * x_stride + index * x_stride + columns
        x = tl.load(x, mask=inside, other=0.0).to(tl.float32)
        tile *= feature_map_derivative(x, PHI)
    if pads is not None:
        tile = tl.where(kept_rows(start, length, pads, ROWS)[:, None], tile, 0.0)
    pointer += start * stride + index * stride + columns
    tl.store(pointer, tile.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def mixed_dot(a, b, accumulator, PRECISION: tl.constexpr):
    """accumulator + a b, where one operand may be a float32 sum.

    Beside bfloat16 the sum is rounded to bfloat16. float16 would overflow, so there
    both operands become float32: TF32 has float16's ten bits and float32's range.
    """
    if a.dtype != b.dtype:
        if a.dtype == tl.bfloat16 or b.dtype == tl.bfloat16:
            a = a.to(tl.bfloat16)
            b = b.to(tl.bfloat16)
        else:
            a = a.to(tl.float32)
            b = b.to(tl.float32)
    return dot(a, b, accumulator, PRECISION)


@triton.jit
def state_offsets(
    row_stride: tl.constexpr,
    column_stride: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Offsets of a (ROWS, COLUMNS) tile of a state or, by its strides, of S^T."""
    rows = tl.arange(0, ROWS)[:, None] * row_stride
    return rows + tl.arange(0, COLUMNS)[None, :] * column_stride
