"""Sums over the rows of a tensor, such as gradients of biases, in two launches.

The kernel that makes the rows leaves a sum of some of them each program, in float32;
the kernel here adds those up, in one order, and rounds once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launching import launch

ROWS, COLUMNS, NUM_WARPS = 32, 64, 4


def totals(
    partial: Tensor, dtype: torch.dtype, other: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """The sums of the rows of ``partial``, and of those of another tensor.

    Args:
        partial: contiguous float32 (P, C).
        dtype: of its sum.
        other: contiguous float32 (Q, D), D up to COLUMNS, or None.

    Returns:
        (C,) in ``dtype``, and (D,) in float32 or None.
    """
    rows, columns = partial.shape
    programs = triton.cdiv(columns, COLUMNS)
    total = partial.new_empty(columns, dtype=dtype)
    other_rows, other_columns, other_total = 0, 0, None
    if other is not None:
        other_rows, other_columns = other.shape
        other_total = other.new_empty(other_columns)
    launch(
        total_kernel,
        (programs if other is None else programs + 1,),
        partial,
        total,
        other,
        other_total,
        rows,
        other_rows,
        columns,
        other_columns,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=NUM_WARPS,
    )
    return total, other_total


# the strides, which are widths, are multiples of 16: a thread loads 16 bytes at a time
@triton.jit(do_not_specialize=["rows", "other_rows"])
def total_kernel(
    partial,
    total,
    other,
    other_total,
    rows,
    other_rows,
    stride,
    other_stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The last program is that of ``other``, if there is one."""
    if other is not None:
        if tl.program_id(0) == tl.num_programs(0) - 1:
            _columns(other, other_total, 0, other_rows, other_stride, ROWS, COLUMNS)
            return
    first = tl.program_id(0) * COLUMNS
    _columns(partial, total, first, rows, stride, ROWS, COLUMNS)


@triton.jit
def _columns(
    partial, total, first, rows, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    column = first + tl.arange(0, COLUMNS)
    inside = column < stride
    found = tl.zeros((ROWS, COLUMNS), tl.float32)
    for i in range(0, rows, ROWS):
        row = i + tl.arange(0, ROWS)
        mask = (row < rows)[:, None] & inside[None, :]
        at = row.to(tl.int64)[:, None] * stride + column[None, :]
        found += tl.load(partial + at, mask=mask, other=0.0)
    found = tl.sum(found, 0).to(total.dtype.element_ty)
    tl.store(total + column, found, mask=inside)
