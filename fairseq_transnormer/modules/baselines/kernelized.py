"""Kernelized Attention: a Gaussian kernel for the softmax (Chen et al., 2021)."""

import torch.nn.functional as F
from torch import Tensor

from ...ops.backend import accumulation_dtype, autocast_disabled
from ..attention import EncoderAttention, LayerConfig
from ..registry import register_attention


@register_attention("kernelized")
class KernelizedAttention(EncoderAttention):
    """o_i = sum_j exp(-|q_i - k_j|^2 / (2 sqrt(d))) v_j, not divided by the sum.

    Time and memory are quadratic in the length. The sum is not an average: it grows
    with the number of keys near a query.

    Args:
        config, causal: see ``EncoderAttention``; reads attention_dropout.
    """

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.initialise()

    def encode(
        self, query: Tensor, key: Tensor, value: Tensor, pads: Tensor | None
    ) -> Tensor:
        with autocast_disabled(query):
            dtype = accumulation_dtype(query.dtype)
            query, key, value = (
                x.to(dtype).transpose(1, 2) for x in (query, key, value)
            )
            # values of zero remove pads
            weights = gaussian_kernel(query, key)
            weights = F.dropout(weights, self.dropout, self.training)
            return (weights @ value).transpose(1, 2)


def gaussian_kernel(x: Tensor, y: Tensor) -> Tensor:
    """exp(-|x_i - y_j|^2 / (2 sqrt(d))): (..., N, d), (..., M, d) -> (..., N, M)."""
    scale = x.shape[-1] ** -0.5
    x_square, y_square = (z.square().sum(-1) * (scale / 2) for z in (x, y))
    exponent = scale * x @ y.transpose(-1, -2)
    exponent = exponent - x_square.unsqueeze(-1) - y_square.unsqueeze(-2)
    # rounding may leave a distance below zero
    return exponent.clamp(max=0).exp()
