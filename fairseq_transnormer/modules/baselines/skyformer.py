"""Skyformer: Nystrom approximation of the Gaussian kernel (Chen et al., 2021)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...ops.backend import accumulation_dtype, autocast_disabled
from ...ops.inputs import real_lengths
from ..attention import EncoderAttention, LayerConfig
from ..options import described
from ..registry import register_attention
from .kernelized import gaussian_kernel
from .nystromformer import iterative_inverse
from .segments import draw_integers, one_of_each, segments, take


@dataclass
class SkyformerOptions:
    """What can be configured of Skyformer alone."""

    skyformer_landmarks: int = described(
        128, "Skyformer: landmarks, half of them queries and half keys", at_least=2
    )
    skyformer_iterations: int = described(
        6, "Skyformer: iterations of the inverse", at_least=1
    )
    skyformer_regularization: float = described(
        0.1, "Skyformer: gamma, added to the diagonal before the inverse", above=0
    )


@register_attention("skyformer", SkyformerOptions)
class SkyformerAttention(EncoderAttention):
    """O = C(Q, L) M^-1 C(L, K) V, M = C(L, L) + gamma I, C the Gaussian kernel.

    It is the upper right block of the Nystrom approximation of the positive definite
    C([Q; K], [Q; K]). The landmarks L are some of its rows. With D the diagonal of M's
    row sums, D^-1/2 M D^-1/2 has eigenvalues in (0, 1]; its inverse is iterated. Time
    and memory are linear in the length.

    A row is divided into segments of equal length, and one token of each is a landmark,
    for queries and for keys. The choice within a segment is drawn when the module is
    built and saved with it.

    Args:
        config, causal: see ``EncoderAttention``; reads ``SkyformerOptions``.
    """

    drawn: Tensor

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.iterations = config.skyformer_iterations
        self.regularization = config.skyformer_regularization
        self.query_landmarks = config.skyformer_landmarks // 2
        self.register_buffer("drawn", draw_integers(config.skyformer_landmarks))
        self.initialise()

    def landmarks(
        self, query: Tensor, key: Tensor, pads: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(B, m, H, D), zero where there is none, and bool (B, m), True there."""
        lengths, found = real_lengths(query, pads), []
        parts = self.drawn.tensor_split((self.query_landmarks,))
        for x, drawn in zip((query, key), parts, strict=True):
            index, missing = one_of_each(*segments(lengths, len(drawn)), drawn)
            found.append((take(x, index), missing))
        landmarks, missing = (torch.cat(each, 1) for each in zip(*found, strict=True))
        return landmarks.masked_fill(missing[:, :, None, None], 0), missing

    def encode(
        self, query: Tensor, key: Tensor, value: Tensor, pads: Tensor | None
    ) -> Tensor:
        with autocast_disabled(query):
            dtype = accumulation_dtype(query.dtype)
            query, key, value = (x.to(dtype) for x in (query, key, value))
            landmarks, missing = self.landmarks(query, key, pads)
            query, key, value, landmarks = (
                x.transpose(1, 2) for x in (query, key, value, landmarks)
            )
            missing = missing[:, None]
            middle = gaussian_kernel(landmarks, landmarks)
            middle = middle.masked_fill(missing[..., None] | missing[..., None, :], 0)
            identity = torch.eye(middle.shape[-1], dtype=dtype, device=middle.device)
            middle = middle + self.regularization * identity
            root = middle.sum(-1, keepdim=True).rsqrt()
            root = root.masked_fill(missing[..., None], 0)
            inverse = iterative_inverse(
                root * middle * root.transpose(-1, -2), self.iterations
            )
            # values of zero remove pads
            output = root * (gaussian_kernel(landmarks, key) @ value)
            output = gaussian_kernel(query, landmarks) @ (root * (inverse @ output))
            return output.transpose(1, 2)
