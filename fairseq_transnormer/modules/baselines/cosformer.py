"""cosFormer: ReLU features reweighted by the distance (Qin et al., 2022)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...ops import LinearAttentionState, linear_attention
from ...ops.backend import accumulation_dtype
from ...ops.inputs import real_lengths
from ..attention import Attention, LayerConfig
from ..options import described
from ..registry import register_attention


@dataclass
class CosformerOptions:
    """What can be configured of cosFormer alone."""

    cosformer_length: int = described(
        512,
        "cosFormer: m of its reweighting and longest input; 0: the length of each row "
        "(bidirectional only)",
        at_least=0,
    )


@register_attention("cosformer", CosformerOptions)
class CosformerAttention(Attention):
    """o_i = sum_j s_ij v_j / max(sum_j s_ij, 1e-6), s_ij = relu(q_i) . relu(k_j) c_ij.

    The weights are c_ij = cos(pi / 2 (i - j) / m). The features [relu(x) cos(pi i / 2
    m), relu(x) sin(pi i / 2 m)] produce them in linear time. Distances of m or more
    would have negative weights.

    Args:
        config, causal: see ``Attention``. cosformer_length is m, the longest input. 0
            means the number of real tokens of each row, as in the paper's code; a
            causal layer cannot know it.

    Raises:
        ValueError: cosformer_length 0 in a causal layer; (in forward) a longer input.
    """

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.length = config.cosformer_length
        if causal and self.length == 0:
            raise ValueError(
                "cosformer_length=0; allowed in a causal model, which does not know "
                "the length of what it reads: 1 or more"
            )
        self.longest_input = self.length or None
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
        self._check_length(key, key_padding_mask, state)
        length: int | Tensor = self.length
        if length == 0:
            length = real_lengths(key, key_padding_mask).clamp(min=1)[:, None]
        query, key = (_reweighted(x, positions, length) for x in (query, key))
        output, state = linear_attention(
            query,
            key,
            value,
            causal=self.causal,
            key_padding_mask=key_padding_mask,
            normalize=True,
            initial_state=state,
            return_state=return_state,
            backend=self.backend,
        )
        return output.flatten(2), state

    def _check_length(
        self, key: Tensor, pads: Tensor | None, state: LinearAttentionState | None
    ) -> None:
        if self.length == 0 or (state is None and key.shape[1] <= self.length):
            return  # the device is not waited for
        lengths = real_lengths(key, pads, None if state is None else state.length)
        total = int(lengths.max()) if len(lengths) else 0  # a batch may be empty
        if total > self.length:
            raise ValueError(
                f"input of {total} tokens; allowed: up to "
                f"cosformer_length={self.length}, beyond which weights are negative"
            )

    def mixing_flops(self, length: int) -> float:
        return 8 * self.embed_dim * (self.head_dim + 1)


def _reweighted(x: Tensor, positions: Tensor, length: int | Tensor) -> Tensor:
    """(B, N, H, D) -> (B, N, H, 2 D): relu(x) times cos and sin of the position.

    positions: (N,) or (B, N); length: m, or (B, 1).
    """
    dtype = accumulation_dtype(x.dtype)
    angles = (math.pi / 2 * positions.to(dtype) / length)[..., None, None]
    features = x.relu()
    return torch.cat((features * angles.cos(), features * angles.sin()), -1).to(x.dtype)
