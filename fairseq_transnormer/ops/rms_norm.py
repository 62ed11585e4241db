"""SimpleRMSNorm: the normalisation that replaces scaling in NormAttention.

Letters: D width of a row.
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
from .inputs import DTYPE_NAMES, DTYPES

# one program of the Triton kernel holds a whole row
LARGEST_TRITON_WIDTH = 8192


def rms_norm(x: Tensor, *, eps: float = 1e-8, backend: str = "auto") -> Tensor:
    """x * rsqrt(mean(x^2) + eps) over the last dimension, without gain and bias.

    Args:
        x: (..., D); float64, float32, bfloat16 or float16. Computed in float32
            (float64).
        eps: added under the root, above 0: a row of zeros stays zero.
        backend: "auto", "torch", "triton" or "reference".

    Returns:
        the shape and dtype of x.

    Raises:
        ValueError: eps is not above 0; x has another dtype, or no rows of width 1 or
            more. Or the backend's name is not known, or backend="triton" cannot run
            here.
    """
    check_eps(eps)
    if x.dtype not in DTYPES or x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(
            f"x is {x.dtype} {tuple(x.shape)}; allowed: rows of width 1 or more, in "
            f"{DTYPE_NAMES}"
        )

    def kernels() -> Kernels:
        # a number, also where torch.compile leaves sizes open
        width = index(x.shape[-1])
        return Kernels(
            "rms_norm",
            lambda: {"width": width},
            products=False,
            unless=why_row_is_too_wide(width),
        )

    return select(_IMPLEMENTATIONS, backend, (x,), kernels)(x, eps=eps)


def check_eps(eps: float) -> None:
    """Raise ValueError unless zeros stay finite where they are divided by it."""
    if not eps > 0:
        raise ValueError(f"eps={eps}; allowed: above 0")


def why_row_is_too_wide(width: int) -> str | None:
    """Why Triton's kernels cannot take rows of this width, or None."""
    if width <= LARGEST_TRITON_WIDTH:
        return None
    return f"width {width}; its kernel takes up to {LARGEST_TRITON_WIDTH}"


def _torch_rms_norm(x: Tensor, *, eps: float) -> Tensor:
    if not needs_gradient(x):
        return _normalised(x, eps)[0]
    return _RMSNorm.apply(x, eps)


def _normalised(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The output, and 1 / RMS."""
    with autocast_disabled(x):
        dtype = accumulation_dtype(x.dtype)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
        start = length.new_full((), eps)
        scale = torch.addcmul(start, length, length, value=1 / x.shape[-1]).rsqrt_()
        return (x * scale).to(x.dtype), scale


class _RMSNorm(torch.autograd.Function):
    """Saves its output, which the layer after it saves anyway, and 1 / RMS."""

    @staticmethod
    def forward(ctx, x, eps):
        y, scale = _normalised(x, eps)
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        y, scale = ctx.saved_tensors
        with autocast_disabled(y):
            y, g = y.to(scale.dtype), grad.to(scale.dtype)
            along = (g * y).mean(-1, keepdim=True)
            return (scale * (g - y * along)).to(grad.dtype), None


def _triton_rms_norm(x: Tensor, *, eps: float) -> Tensor:
    # imported when it is first called: Triton need not be installed
    from .kernels.rms_norm import rms_norm

    return rms_norm(x, eps=eps)


_IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "torch": _torch_rms_norm,
    "reference": reference.rms_norm,
    "triton": _triton_rms_norm,
}
