"""LRPE: the position encoding on queries and keys (specification, "Spec card").

Letters: B batch, N length, H heads, D head width.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index

import torch
from torch import Tensor

from . import reference
from .backend import (
    Kernels,
    accumulation_dtype,
    autocast_disabled,
    needs_gradient,
    select,
)
from .derivatives import once_differentiable
from .feature_maps import DERIVATIVES_FROM_OUTPUT, FEATURE_MAPS, check_feature_map
from .inputs import DTYPE_NAMES, DTYPES


def lrpe(
    query: Tensor,
    key: Tensor,
    theta: Tensor,
    reflection: Tensor,
    positions: Tensor,
    *,
    feature_map: str = "identity",
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Map, reflect at a fixed direction, and rotate pairs by position * theta.

    For x = phi(query) and x = phi(key): y = R(position * theta) (x - 2 (x . v) v). R
    turns the pairs (0, 1), (2, 3), ... The product of two encoded vectors depends on
    the difference of their positions only. Angles are computed in float32 (float64 for
    float64 inputs).

    Args:
        query, key: (B, N, H, D), D even; one shape and dtype, float64, float32,
            bfloat16 or float16.
        theta: (D / 2,), radians per position; keep it in float32.
        reflection: (D,), the unit vector v; gets no gradient.
        positions: (N,) or (B, N), int64.
        feature_map: phi; "identity", "elu", "1+elu" or "relu".
        backend: "auto", "torch", "triton" or "reference".

    Returns:
        query and key encoded: (B, N, H, D) each, in their dtype.

    Raises:
        ValueError: the width is odd, or query and key differ in shape or dtype, or have
            another dtype or number of dimensions. Or theta, reflection or positions do
            not fit, or a name is not known. Or backend="triton" cannot run here.
    """
    check_feature_map(feature_map)
    width = query.shape[-1]
    same = query.shape == key.shape and query.dtype == key.dtype
    if query.dim() != 4 or not same:
        raise ValueError(
            f"query is {query.dtype} {tuple(query.shape)}, key {key.dtype} "
            f"{tuple(key.shape)}; allowed: one dtype, one (batch, length, heads, width)"
        )
    # the rotated numbers would be cut off to whole ones
    if query.dtype not in DTYPES:
        raise ValueError(f"query has dtype {query.dtype}; allowed: {DTYPE_NAMES}")
    if width % 2:
        raise ValueError(
            f"query has head width {width}; LRPE turns pairs: allowed: even"
        )
    if theta.shape != (width // 2,) or reflection.shape != (width,):
        raise ValueError(
            f"theta has shape {tuple(theta.shape)} and reflection "
            f"{tuple(reflection.shape)}; allowed for head width {width}: "
            f"({width // 2},) and ({width},)"
        )
    shapes = query.shape[1:2], query.shape[:2]
    if positions.shape not in shapes or positions.dtype != torch.int64:
        raise ValueError(
            f"positions are {positions.dtype} {tuple(positions.shape)}; allowed: "
            f"torch.int64 {' or '.join(str(tuple(shape)) for shape in shapes)}"
        )

    def kernels() -> Kernels:
        # a number, also where torch.compile leaves sizes open
        size = index(width)
        known = {"width": size, "feature_map": feature_map}
        return Kernels("lrpe", lambda: known, widths=(size,), products=False)

    implementation = select(_IMPLEMENTATIONS, backend, (query, key), kernels)
    return implementation(
        query, key, theta, reflection, positions, feature_map=feature_map
    )


def _torch_lrpe(
    query: Tensor,
    key: Tensor,
    theta: Tensor,
    reflection: Tensor,
    positions: Tensor,
    *,
    feature_map: str,
) -> tuple[Tensor, Tensor]:
    if feature_map not in DERIVATIVES_FROM_OUTPUT:
        query, key = FEATURE_MAPS[feature_map](query), FEATURE_MAPS[feature_map](key)
        feature_map = "identity"
    if query.shape[1] == 1 and not needs_gradient(query, key, theta):
        # so short, each operation costs more than its numbers
        both = torch.stack((query, key))
        query, key = _encoded(both, theta, reflection, positions, feature_map).unbind()
        return query, key
    return (
        _LRPE.apply(query, theta, reflection, positions, feature_map),
        _LRPE.apply(key, theta, reflection, positions, feature_map),
    )


class _LRPE(torch.autograd.Function):
    """Saves its output, which the attention saves anyway, instead of its input."""

    @staticmethod
    def forward(ctx, x, theta, reflection, positions, feature_map):
        ctx.feature_map = feature_map
        y = _encoded(x, theta, reflection, positions, feature_map)
        ctx.save_for_backward(y, theta, reflection, positions)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        y, theta, reflection, positions = ctx.saved_tensors
        with autocast_disabled(y):
            dtype = accumulation_dtype(y.dtype)
            grad_x, grad_theta, grad = None, None, grad.to(dtype)
            # a part of another tensor, which cannot be viewed as complex numbers
            if not torch.compiler.is_compiling() and grad.storage_offset() % 2:
                grad = grad.clone()
            if ctx.needs_input_grad[0]:
                turns_back = _turns(theta, positions, dtype).conj()
                grad_x = _reflect(_turned(grad, turns_back), reflection)
                if ctx.feature_map != "identity":
                    mapped = _reflect(_turned(y.to(dtype), turns_back), reflection)
                    grad_x *= DERIVATIVES_FROM_OUTPUT[ctx.feature_map](mapped)
                grad_x = grad_x.to(y.dtype)
            if ctx.needs_input_grad[1]:
                even, odd = _pairs(y.to(dtype))
                grad_even, grad_odd = _pairs(grad)
                # d(even, odd) / d angle = (-odd, even)
                by_angle = (grad_odd * even - grad_even * odd).sum(2)
                by_position = by_angle * positions.to(dtype)[..., None]
                grad_theta = by_position.flatten(0, 1).sum(0).to(theta.dtype)
        return grad_x, grad_theta, None, None, None


def _encoded(
    x: Tensor, theta: Tensor, reflection: Tensor, positions: Tensor, feature_map: str
) -> Tensor:
    with autocast_disabled(x):
        dtype = accumulation_dtype(x.dtype)
        turns = _turns(theta, positions, dtype)
        mapped = FEATURE_MAPS[feature_map](x.to(dtype))
        return _turned(_reflect(mapped, reflection), turns).to(x.dtype)


def _turns(theta: Tensor, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """exp(i position theta): (N, 1, D / 2), or (B, N, 1, D / 2) for (B, N)."""
    angles = positions[..., None, None] * theta.to(dtype)
    return torch.complex(angles.cos(), angles.sin())


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    """x with each pair, read as a complex number, times its turn."""
    pairs = x.contiguous().view(*x.shape[:-1], x.shape[-1] // 2, 2)
    return torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(-2)


def _reflect(x: Tensor, direction: Tensor) -> Tensor:
    v = direction.to(x.dtype)
    return torch.addcmul(x, (x @ v).unsqueeze(-1), v, value=-2)


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., 0::2], x[..., 1::2]


def _triton_lrpe(*arguments: Tensor, feature_map: str) -> tuple[Tensor, Tensor]:
    # imported when it is first called: Triton need not be installed
    from .kernels.lrpe import lrpe

    return lrpe(*arguments, feature_map=feature_map)


_IMPLEMENTATIONS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "torch": _torch_lrpe,
    "reference": reference.lrpe,
    "triton": _triton_lrpe,
}
