"""SimpleRMSNorm's kernels and their launch; ``ops.rms_norm`` says what is computed.

Letters: B batch, N length, D width of a row.

A program takes ROWS whole rows in a tile of COLUMNS, the power of two that holds one.
Rows are counted through two dimensions with a stride each, so that (B, N, D) views of
(N, B, D) need no copy.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import (
    differentiable,
    empty_with_rows_like,
    launch,
    strides,
    with_contiguous_rows,
)

# elements of a program's tile: 32 for each thread of 4 warps
TILE = 4096


def rms_norm(x: Tensor, *, eps: float) -> Tensor:
    """``ops.rms_norm`` for widths up to ``ops.rms_norm.LARGEST_TRITON_WIDTH``."""
    rows = rows_of(x)
    return _norm(rows, float(eps))[0].view(x.shape)


def _forward(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The output and 1 / RMS of each row."""
    y = empty_with_rows_like(x)
    scale = torch.empty(x.shape[:2], dtype=torch.float32, device=x.device)
    _launch(norm_kernel, (x, y), scale, eps)
    return y, scale


def _backward(y: Tensor, scale: Tensor, grad: Tensor) -> tuple[Tensor]:
    grad_x = empty_with_rows_like(y)
    _launch(norm_backward_kernel, (y, with_contiguous_rows(grad), grad_x), scale)
    return (grad_x,)


def rows_of(x: Tensor) -> Tensor:
    """x with three dimensions, copied only where strides leave no other way."""
    x = with_contiguous_rows(x)
    return x if x.dim() == 3 else x.reshape(1, -1, x.shape[-1])


def tile_options(x: Tensor) -> tuple[tuple[int], dict[str, int]]:
    """The launch grid for the rows of (outer, inner, D), and what a program takes."""
    outer, inner, width = x.shape
    columns = max(16, triton.next_power_of_2(width))
    rows = min(64, max(1, TILE // columns))
    return (triton.cdiv(outer * inner, rows),), {
        "WIDTH": width,
        "ROWS": rows,
        "COLUMNS": columns,
        "num_warps": 4 if columns <= TILE else 8,
    }


def _launch(kernel, tensors, scale, *scalars):
    outer, inner, _ = tensors[0].shape
    grid, options = tile_options(tensors[0])
    launch(
        kernel,
        grid,
        *tensors,
        scale,
        *scalars,
        outer * inner,
        inner,
        strides(tensors),
        **options,
    )


@triton.jit(do_not_specialize=["count", "inner"])
def norm_kernel(
    x,
    y,
    scale,
    eps,
    count,
    inner,
    strides,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """strides: of x and y, outer and inner. scale: (count,)."""
    row, i, j, column, mask = place_of_tile(count, inner, WIDTH, ROWS, COLUMNS)
    x_at = at_tile(x, strides[0], i, j, column)
    wide = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
    z, s = norm_of(wide, eps, WIDTH)
    tl.store(scale + row, s, mask=row < count)
    y_at = at_tile(y, strides[1], i, j, column)
    tl.store(y_at, z.to(y_at.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count", "inner"])
def norm_backward_kernel(
    y,
    grad,
    grad_x,
    scale,
    count,
    inner,
    strides,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """strides: of y, grad and grad_x, outer and inner. scale: (count,)."""
    row, i, j, column, mask = place_of_tile(count, inner, WIDTH, ROWS, COLUMNS)
    y_at = at_tile(y, strides[0], i, j, column)
    wide = tl.load(y_at, mask=mask, other=0.0).to(tl.float32)
    grad_at = at_tile(grad, strides[1], i, j, column)
    g = tl.load(grad_at, mask=mask, other=0.0).to(tl.float32)
    s = tl.load(scale + row, mask=row < count, other=0.0)
    dx = norm_gradient(wide, g, s, WIDTH)
    dx_at = at_tile(grad_x, strides[2], i, j, column)
    tl.store(dx_at, dx.to(dx_at.dtype.element_ty), mask=mask)


@triton.jit
def norm_of(x, eps, WIDTH: tl.constexpr):
    """The normalised rows, and 1 / RMS of each."""
    s = 1.0 / tl.sqrt_rn(tl.sum(x * x, 1) / WIDTH + eps)
    return x * s[:, None], s


@triton.jit
def norm_gradient(y, g, s, WIDTH: tl.constexpr):
    """Gradient of x for the gradient g of y, the norm of x, and s = 1 / RMS."""
    along = tl.sum(g * y, 1) / WIDTH
    return s[:, None] * (g - y * along[:, None])


@triton.jit
def place_of_tile(
    count, inner, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Row, its two indices, columns, and the mask of the program's tile."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)[None, :]
    mask = (row < count)[:, None] & (column < WIDTH)
    i, j = (row // inner).to(tl.int64), (row % inner).to(tl.int64)
    return row, i, j, column, mask


@triton.jit
def at_tile(tensor, strides, i, j, column):
    """Pointers to the program's tile of a tensor."""
    stride_outer, stride_inner = strides
    return tensor + ((i * stride_outer + j * stride_inner)[:, None] + column)


def _save(ctx, arguments, outputs):
    # the output, which the layer after saves anyway
    ctx.save_for_backward(*outputs)


def _gradients(ctx, backward, grad):
    return backward(*ctx.saved_tensors, grad)[0], None


_norm = differentiable(
    "rms_norm",
    _forward,
    "(Tensor x, float eps) -> (Tensor, Tensor)",
    _backward,
    "(Tensor y, Tensor scale, Tensor grad) -> Tensor",
    save=_save,
    gradients=_gradients,
    results=1,
)
