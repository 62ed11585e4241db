"""Normalisations by name."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops import rms_norm
from ..ops.backend import accumulation_dtype
from .options import Choice


class SimpleRMSNorm(nn.Module):
    """x * rsqrt(mean(x^2) + eps) over the last dimension, without parameters.

    It replaces the scaling in NormAttention, and is TransNormer's layer norm.

    Args:
        dim: width, only printed.
        eps: added under the root.
        backend: see ``ops.rms_norm``.
    """

    def __init__(self, dim: int, eps: float = 1e-8, backend: str = "auto"):
        super().__init__()
        self.dim, self.eps, self.backend = dim, eps, backend

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, eps=self.eps, backend=self.backend)

    if TYPE_CHECKING:
        __call__ = forward

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}"


class RMSNorm(SimpleRMSNorm):
    """SimpleRMSNorm times a learned gain (Zhang and Sennrich, 2019)."""

    def __init__(self, dim: int, eps: float = 1e-8, backend: str = "auto"):
        super().__init__(dim, eps, backend)
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.weight.to(x.dtype)


class ScaleNorm(RMSNorm):
    """SimpleRMSNorm times one learned number (Nguyen and Salazar, 2019)."""

    def __init__(self, dim: int, eps: float = 1e-8, backend: str = "auto"):
        super().__init__(dim, eps, backend)
        self.weight = nn.Parameter(torch.ones(1))


class LayerNorm(nn.LayerNorm):
    """torch's LayerNorm, computed in float32 (float64), returned in x's dtype.

    Some attentions return float32, which would overflow in float16.
    """

    def __init__(self, dim: int, eps: float = 1e-5, backend: str = "auto"):
        super().__init__(dim, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        dtype = accumulation_dtype(x.dtype)
        weight, bias = self.weight.to(dtype), self.bias.to(dtype)
        y = F.layer_norm(x.to(dtype), self.normalized_shape, weight, bias, self.eps)
        return y.to(x.dtype)

    if TYPE_CHECKING:
        __call__ = forward


NORMS = {
    "simple_rms_norm": SimpleRMSNorm,
    "rms_norm": RMSNorm,
    "scale_norm": ScaleNorm,
    "layer_norm": LayerNorm,
    "none": nn.Identity,
}


class NormType(Choice, values=NORMS):
    """A norm."""


def build_norm(kind: str, dim: int, eps: float, backend: str = "auto") -> nn.Module:
    """The norm called ``kind`` over a last dimension of ``dim``."""
    return NORMS[str(kind)](dim, eps=eps, backend=backend)
