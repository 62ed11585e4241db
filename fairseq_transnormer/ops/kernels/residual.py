"""A layer's residual connection in one kernel; ``ops.residual`` says what is computed.

Letters: B batch, N length, D width of a row. Rows are cut as in ``rms_norm``.

What is dropped is drawn anew in the backward pass; see ``dropout``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..derivatives import once_differentiable
from . import dropout
from .dropout import draw_seed, is_kept, threshold_and_growth
from .launch import (
    empty_with_rows_like,
    in_place,
    launch,
    required,
    strides,
)
from .rms_norm import (
    at_tile,
    norm_gradient,
    norm_of,
    place_of_tile,
    rows_of,
    tile_options,
)


def norm_with_residual(x: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    """``ops.residual.norm_with_residual``."""
    return _NormWithResidual.apply(x, float(eps))


def dropout_add(x: Tensor, y: Tensor, *, dropout_p: float) -> Tensor:
    """``ops.residual.dropout_add``."""
    return _DropoutAdd.apply(x, y, float(dropout_p))


def dropout_add_norm(
    x: Tensor, y: Tensor, *, dropout_p: float, eps: float
) -> tuple[Tensor, Tensor]:
    """``ops.residual.dropout_add_norm``."""
    return _DropoutAddNorm.apply(x, y, float(dropout_p), float(eps))


class _NormWithResidual(torch.autograd.Function):
    """The gradient of x that comes from elsewhere is added in the norm's launch."""

    @staticmethod
    def forward(ctx, x, eps):
        _, normed, scale = _residual(rows_of(x), None, 0.0, 0, eps, True)
        ctx.save_for_backward(normed, scale)
        ctx.set_materialize_grads(False)
        return x, normed.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_x, grad_normed):
        if grad_normed is None:
            return grad_x, None
        grad, _ = _launch_backward(ctx.saved_tensors, grad_x, grad_normed)
        return grad, None


class _DropoutAdd(torch.autograd.Function):
    """The gradient of x is that of the sum."""

    @staticmethod
    def forward(ctx, x, y, dropout_p):
        seed = draw_seed()
        total, *_ = _residual(rows_of(x), rows_of(y), dropout_p, seed, 0.0, False)
        ctx.dropout, ctx.dtypes = (dropout_p, seed), (x.dtype, y.dtype)
        return total.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x_dtype, y_dtype = ctx.dtypes
        _, grad_y = _launch_backward(
            (None, None), grad, None, *ctx.dropout, x_dtype=None, y_dtype=y_dtype
        )
        return grad.to(x_dtype), grad_y, None


class _DropoutAddNorm(torch.autograd.Function):
    """Both gradients from those of the sum and of its norm, in one launch."""

    @staticmethod
    def forward(ctx, x, y, dropout_p, eps):
        seed = draw_seed() if dropout_p else 0
        total, normed, scale = _residual(
            rows_of(x), rows_of(y), dropout_p, seed, eps, True
        )
        ctx.save_for_backward(normed, scale)
        ctx.dropout, ctx.dtypes = (dropout_p, seed), (x.dtype, y.dtype)
        ctx.set_materialize_grads(False)
        return total.view(x.shape), normed.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_total, grad_normed):
        if grad_total is None and grad_normed is None:
            return None, None, None, None
        dropout_p, seed = ctx.dropout
        x_dtype, y_dtype = ctx.dtypes
        same = dropout_p == 0 and x_dtype == y_dtype
        grad_x, grad_y = _launch_backward(
            ctx.saved_tensors,
            grad_total,
            grad_normed,
            dropout_p,
            seed,
            x_dtype,
            None if same else y_dtype,
        )
        return grad_x, grad_x if same else grad_y, None, None


def _launch_backward(
    saved, grad_total, grad_normed, dropout_p=0.0, seed=0, x_dtype=..., y_dtype=None
):
    """Gradients of x and y, each where it has a dtype, in the shape of what arrived.

    saved: the norm's output and 1 / RMS of its rows. x_dtype: ...: that of the norm.
    """
    some = grad_total if grad_normed is None else grad_normed
    grads = (x if x is None else rows_of(x) for x in (grad_total, grad_normed))
    x_dtype = some.dtype if x_dtype is ... else x_dtype
    dtypes = x_dtype, y_dtype
    found = _residual_backward(*saved, *grads, dropout_p, seed, *dtypes)
    return (
        None if dtype is None else x.view(some.shape)
        for x, dtype in zip(found, dtypes, strict=True)
    )


def _forward(
    x: Tensor, y: Tensor | None, dropout_p: float, seed: int, eps: float, norm: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """x + dropout(y), its norm and 1 / RMS of its rows; (outer, inner, D) each.

    y: None: the norm of x. norm: whether there is one.
    """
    total = normed = scale = None
    dtype = x.dtype
    if y is not None:
        dtype = torch.result_type(x, y)
        total = empty_with_rows_like(x, dtype)
    if norm:
        normed = empty_with_rows_like(x, dtype)
        scale = torch.empty(x.shape[:2], dtype=torch.float32, device=x.device)
    _launch(residual_kernel, (x, y, total, normed), scale, dropout_p, seed, eps)
    return total, normed, scale


def _backward(
    normed: Tensor | None,
    scale: Tensor | None,
    grad_total: Tensor | None,
    grad_normed: Tensor | None,
    dropout_p: float,
    seed: int,
    x_dtype: torch.dtype | None,
    y_dtype: torch.dtype | None,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x and y, each where a dtype is given."""
    like = required(grad_total) if normed is None else normed
    grad_x, grad_y = (
        None if dtype is None else empty_with_rows_like(like, dtype)
        for dtype in (x_dtype, y_dtype)
    )
    tensors = (normed, grad_total, grad_normed, grad_x, grad_y)
    _launch(residual_backward_kernel, tensors, scale, dropout_p, seed, 0.0)
    return grad_x, grad_y


def _launch(kernel, tensors, scale, dropout_p, seed, eps):
    """tensors: (outer, inner, D), or None."""
    some = next(x for x in tensors if x is not None)
    outer, inner, _ = some.shape
    grid, options = tile_options(some)
    launch(
        kernel,
        grid,
        *tensors,
        scale,
        eps,
        seed,
        *threshold_and_growth(dropout_p),
        outer * inner,
        inner,
        strides(some if x is None else x for x in tensors),
        DROPS=dropout_p > 0,
        **options,
    )


NUMBERS = [*dropout.NUMBERS, "count", "inner"]


@triton.jit(do_not_specialize=NUMBERS)
def residual_kernel(
    x,
    y,
    total,
    normed,
    scale,
    eps,
    seed,
    threshold,
    growth,
    count,
    inner,
    strides,
    DROPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """total = x + dropout(y), or x where y is None; and its norm.

    total, normed with scale: or None. threshold, growth: see
    ``threshold_and_growth``. strides: of x, y, total and normed, outer and inner.
    """
    row, i, j, column, mask = place_of_tile(count, inner, WIDTH, ROWS, COLUMNS)
    wide = tl.load(at_tile(x, strides[0], i, j, column), mask=mask, other=0.0)
    wide = wide.to(tl.float32)
    if y is not None:
        added = tl.load(at_tile(y, strides[1], i, j, column), mask=mask, other=0.0)
        added = added.to(tl.float32)
        if DROPS:
            kept = is_kept(row, seed, threshold, ROWS, COLUMNS)
            added = tl.where(kept, added * growth, 0.0)
        total_at = at_tile(total, strides[2], i, j, column)
        rounded = (wide + added).to(total.dtype.element_ty)
        tl.store(total_at, rounded, mask=mask)
        # the norm of what the next layer reads
        wide = rounded.to(tl.float32)
    if normed is not None:
        z, s = norm_of(wide, eps, WIDTH)
        tl.store(scale + row, s, mask=row < count)
        normed_at = at_tile(normed, strides[3], i, j, column)
        tl.store(normed_at, z.to(normed.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=NUMBERS)
def residual_backward_kernel(
    normed,
    grad_total,
    grad_normed,
    grad_x,
    grad_y,
    scale,
    eps,
    seed,
    threshold,
    growth,
    count,
    inner,
    strides,
    DROPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Every tensor may be None. strides: of normed ... grad_y, outer and inner."""
    row, i, j, column, mask = place_of_tile(count, inner, WIDTH, ROWS, COLUMNS)
    dx = tl.zeros((ROWS, COLUMNS), tl.float32)
    if grad_total is not None:
        g = tl.load(at_tile(grad_total, strides[1], i, j, column), mask, other=0.0)
        dx += g.to(tl.float32)
    if grad_normed is not None:
        z = tl.load(at_tile(normed, strides[0], i, j, column), mask, other=0.0)
        g = tl.load(at_tile(grad_normed, strides[2], i, j, column), mask, other=0.0)
        s = tl.load(scale + row, mask=row < count, other=0.0)
        dx += norm_gradient(z.to(tl.float32), g.to(tl.float32), s, WIDTH)
    if grad_x is not None:
        dx_at = at_tile(grad_x, strides[3], i, j, column)
        tl.store(dx_at, dx.to(grad_x.dtype.element_ty), mask=mask)
    if grad_y is not None:
        dy = dx
        if DROPS:
            kept = is_kept(row, seed, threshold, ROWS, COLUMNS)
            dy = tl.where(kept, dx * growth, 0.0)
        dy_at = at_tile(grad_y, strides[4], i, j, column)
        tl.store(dy_at, dy.to(grad_y.dtype.element_ty), mask=mask)


_residual = in_place(
    "residual",
    _forward,
    "(Tensor x, Tensor? y, float dropout_p, int seed, float eps, bool norm) "
    "-> (Tensor, Tensor, Tensor)",
    mutates=(),
)
_residual_backward = in_place(
    "residual_backward",
    _backward,
    "(Tensor? normed, Tensor? scale, Tensor? grad_total, Tensor? grad_normed, "
    "float dropout_p, int seed, ScalarType? x_dtype, ScalarType? y_dtype) "
    "-> (Tensor, Tensor)",
    mutates=(),
)
