"""Performer: softmax attention estimated by random features (Choromanski et al., 2020).

phi(x)_j = m^-0.5 exp(w_j . x' - |x'|^2 / 2 - stabiliser) + 1e-4 with x' = x / d^(1/4).
So phi(q) . phi(k) estimates exp(q . k / sqrt(d)). The rest is as in 1+elu attention.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...ops import LinearAttentionState, linear_attention
from ...ops.backend import accumulation_dtype, autocast_disabled
from ..attention import Attention, LayerConfig
from ..float32 import Float32Module, exact_dtype
from ..options import described
from ..registry import register_attention

SMALLEST_FEATURE = 1e-4
# exp of this, times a sum over any length that fits in memory, is within float32
LARGEST_EXPONENT = 60.0


@dataclass
class PerformerOptions:
    """What can be configured of Performer alone."""

    performer_features: int = described(
        64, "Performer: random features of a head", at_least=1
    )


class RandomFeatures(Float32Module):
    """Positive orthogonal random features of the softmax kernel, shared by the heads.

    The directions are a buffer, saved in checkpoints. They are drawn once, from torch's
    random stream, and again only where ``draw`` is called.

    Args:
        head_dim: width d of a head.
        num_features: m.
    """

    directions: Tensor

    def __init__(self, head_dim: int, num_features: int):
        super().__init__()
        shape, dtype = (num_features, head_dim), exact_dtype()
        self.register_buffer("directions", torch.empty(shape, dtype=dtype))
        self.draw()

    @torch.no_grad()
    def draw(self, generator: torch.Generator | None = None) -> None:
        """Draw directions: each d of them orthogonal, with lengths of normal vectors.

        generator: torch's random stream by default.
        """
        count, width = self.directions.shape
        like: dict[str, Any] = {"device": self.directions.device}
        like["dtype"] = self.directions.dtype
        blocks = []
        for _ in range(-(-count // width)):
            square = torch.empty(width, width, **like)
            blocks.append(nn.init.orthogonal_(square, generator=generator).T)
        normal = torch.randn(count, width, generator=generator, **like)
        lengths = normal.norm(dim=1, keepdim=True)
        self.directions.copy_(lengths * torch.cat(blocks)[:count])

    def forward(
        self, query: Tensor, key: Tensor, pads: Tensor | None, *, causal: bool
    ) -> tuple[Tensor, Tensor]:
        """Features of queries and keys.

        Stabilisers keep exp in range. That of a query cancels in the division by the
        sum. The keys of a row share one: as in the paper's code, the largest exponent
        over the real tokens. A causal layer cannot use it, since later keys would
        change earlier outputs. It has none, and bounds exponents instead.

        Args:
            query, key: (B, N, H, d).
            pads: bool (B, N), True at pads, or None.
            causal: whether a key may influence later tokens only.

        Returns:
            (B, N, H, m) each, in float32 (float64).
        """
        with autocast_disabled(query):
            q, k = self._exponents(query), self._exponents(key)
            q = q - q.amax(-1, keepdim=True)
            if causal:
                k = k.clamp(max=LARGEST_EXPONENT)
            else:
                if pads is not None:
                    k = k.masked_fill(pads[:, :, None, None], -torch.inf)
                largest = k.amax((1, 3), keepdim=True)
                # -inf where a row has no token
                k = k - largest.masked_fill(largest == -torch.inf, 0)
            scale = self.directions.shape[0] ** -0.5
            q, k = (scale * x.exp() + SMALLEST_FEATURE for x in (q, k))
            return q, k

    def _exponents(self, x: Tensor) -> Tensor:
        """w_j . x' - |x'|^2 / 2."""
        self.check_float32(self.directions)
        dtype = accumulation_dtype(x.dtype)
        x = x.to(dtype) * x.shape[-1] ** -0.25
        return x @ self.directions.T.to(dtype) - x.square().sum(-1, keepdim=True) / 2

    def extra_repr(self) -> str:
        count, width = self.directions.shape
        return f"{width}, {count}"


@register_attention("performer", PerformerOptions)
class PerformerAttention(Attention):
    """o_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j), linear in time.

    Args:
        config, causal: see ``Attention``; reads performer_features.
    """

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.features = RandomFeatures(self.head_dim, config.performer_features)
        self.initialise()

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: Tensor,
        key_padding_mask: Tensor | None,
        state: LinearAttentionState | None,
        return_state: bool,
    ) -> tuple[Tensor, LinearAttentionState | None]:
        query, key = self.features(query, key, key_padding_mask, causal=self.causal)
        output, state = linear_attention(
            query,
            key,
            value.to(query.dtype),
            causal=self.causal,
            key_padding_mask=key_padding_mask,
            normalize=True,
            initial_state=state,
            return_state=return_state,
            backend=self.backend,
        )
        return output.flatten(2), state

    def mixing_flops(self, length: int) -> float:
        features = len(self.features.directions)
        sums = 4 * self.num_heads * features * (self.head_dim + 1)
        return 4 * self.embed_dim * features + sums
