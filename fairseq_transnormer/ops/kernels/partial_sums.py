"""Sums over the rows of a tensor, such as gradients of biases, in two launches.

Each program of the kernel that makes the rows leaves a sum of some of them, in float32.
The kernel here adds those up, in one order, and rounds once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import launch

ROWS, COLUMNS, NUM_WARPS = 32, 64, 4


def totals(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """The sums of the rows of ``partial``.

    Args:
        partial: contiguous float32 (P, C).
        dtype: of the sums.

    Returns:
        (C,).
    """
    rows, columns = partial.shape
    total = partial.new_empty(columns, dtype=dtype)
    launch(
        total_kernel,
        (triton.cdiv(columns, COLUMNS),),
        partial,
        total,
        rows,
        columns,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=NUM_WARPS,
    )
    return total


# the stride, which is a width, is a multiple of 16: a thread loads 16 bytes at a time
@triton.jit(do_not_specialize=["rows"])
def total_kernel(
    partial, total, rows, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < stride
    found = tl.zeros((ROWS, COLUMNS), tl.float32)
    for i in range(0, rows, ROWS):
        row = i + tl.arange(0, ROWS)
        mask = (row < rows)[:, None] & inside[None, :]
        at = row.to(tl.int64)[:, None] * stride + column[None, :]
        found += tl.load(partial + at, mask=mask, other=0.0)
    found = tl.sum(found, 0).to(total.dtype.element_ty)
    tl.store(total + column, found, mask=inside)
