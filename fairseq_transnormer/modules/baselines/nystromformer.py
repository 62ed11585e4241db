"""Nystromformer: softmax attention by landmarks (Xiong et al., 2021)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...ops import softmax_attention
from ...ops.backend import accumulation_dtype, autocast_disabled
from ...ops.inputs import real_lengths
from ..attention import EncoderAttention, LayerConfig
from ..options import described
from ..registry import register_attention
from .segments import segments, take


@dataclass
class NystromformerOptions:
    """What can be configured of Nystromformer alone."""

    nystromformer_landmarks: int = described(
        128, "Nystromformer: landmarks of a row", at_least=1
    )
    nystromformer_iterations: int = described(
        6, "Nystromformer: iterations of the pseudo-inverse", at_least=1
    )
    nystromformer_kernel_size: int = described(
        0,
        "Nystromformer: tokens under the convolution of the values that is added to "
        "the output, an odd number; 0: none",
        at_least=0,
    )


@register_attention("nystromformer", NystromformerOptions)
class NystromformerAttention(EncoderAttention):
    """O = softmax(Q K_l^T) softmax(Q_l K_l^T)^+ softmax(Q_l K^T) V, over sqrt(d) each.

    Landmarks Q_l and K_l are means over segments of equal length of the row's tokens. A
    row with no more tokens than landmarks gets softmax attention, which then equals the
    product. Time and memory are linear in the length.

    Args:
        config, causal: see ``EncoderAttention``; reads ``NystromformerOptions``.

    Raises:
        ValueError: an even nystromformer_kernel_size above 0.
    """

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.landmarks = config.nystromformer_landmarks
        self.iterations = config.nystromformer_iterations
        kernel_size, heads = config.nystromformer_kernel_size, self.num_heads
        if kernel_size and kernel_size % 2 == 0:
            raise ValueError(
                f"nystromformer_kernel_size={kernel_size}; allowed: odd numbers and 0"
            )
        self.convolution = None
        if kernel_size:
            padding = (kernel_size // 2, 0)
            self.convolution = nn.Conv2d(
                heads,
                heads,
                (kernel_size, 1),
                padding=padding,
                groups=heads,
                bias=False,
            )
        self.initialise()

    def encode(
        self, query: Tensor, key: Tensor, value: Tensor, pads: Tensor | None
    ) -> Tensor:
        local = 0
        if self.convolution is not None:
            local = self.convolution(value.transpose(1, 2)).transpose(1, 2)
        with autocast_disabled(query):
            # the inverse would magnify rounding errors of half precision
            dtype = accumulation_dtype(query.dtype)
            query, key, value = (x.to(dtype) for x in (query, key, value))
            lengths = real_lengths(query, pads)
            means, missing = self._means(torch.cat((query, key, value), -1), lengths)
            query_marks, key_marks, value_marks = means.chunk(3, -1)
            values = softmax_attention(
                query_marks, key, value, causal=False, key_padding_mask=pads
            )[0]
            inverse = iterative_inverse(
                self._middle(query_marks, key_marks, missing), self.iterations
            )
            values = (inverse @ values.transpose(1, 2)).transpose(1, 2)
            whole = (lengths <= self.landmarks)[:, None, None, None]
            values = torch.where(whole, value_marks, values)
            return (
                local
                + softmax_attention(
                    query, key_marks, values, causal=False, key_padding_mask=missing
                )[0]
            )

    def _means(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Means (B, m, H, C) of x (B, N, H, C) over segments; bool, True if empty."""
        start, end = segments(lengths, self.landmarks)
        width = x.shape[1]
        longest = -(-width // self.landmarks)
        index = start[..., None] + torch.arange(longest, device=x.device)
        outside = index >= end[..., None]
        tokens = take(x, index.clamp(max=width - 1).flatten(1))
        tokens = tokens.unflatten(1, (self.landmarks, longest))
        sums = tokens.masked_fill(outside[..., None, None], 0).sum(2)
        size = end - start
        return sums / size.clamp(min=1)[:, :, None, None], size == 0

    def _middle(self, query: Tensor, key: Tensor, missing: Tensor) -> Tensor:
        """softmax(Q_l K_l^T / sqrt(d)), (B, H, m, m), zero at missing landmarks."""
        query, key = query.transpose(1, 2), key.transpose(1, 2)
        scores = self.head_dim**-0.5 * query @ key.transpose(-1, -2)
        missing = missing[:, None]
        hidden = missing[..., None] | missing[..., None, :]
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        return scores.softmax(-1).masked_fill(hidden, 0)


def iterative_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """Z -> Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, from Z = A^T / |A|_1.

    The iteration is of third order (Razavi et al., 2014); Nystromformer and Skyformer
    use it. It converges if |A|_2^2 <= |A|_1: for rows that sum to one, and for
    symmetric matrices with eigenvalues in [0, 1]. Rows and columns of zeros stay zero.

    Args:
        matrix: A, (..., m, m).
        iterations: how many.

    Returns:
        (..., m, m), near the pseudo-inverse.
    """
    # each matrix by its own norm: a norm of the batch would make rows depend on others
    norm = matrix.abs().sum(-2).amax(-1)[..., None, None]
    inverse = matrix.transpose(-1, -2) / norm.clamp(min=torch.finfo(matrix.dtype).tiny)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(iterations):
        product = matrix @ inverse
        step = 15 * identity - product @ (7 * identity - product)
        inverse = inverse @ (13 * identity - product @ step) / 4
    return inverse
