"""FLASH-quad: gated attention over all pairs of tokens (Hua et al., 2022)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...ops.inputs import check_state_kind, real_lengths
from ...ops.rows import append_rows
from ..attention import LayerConfig
from ..options import described
from ..registry import register_layer
from .gated_attention_unit import (
    GatedAttentionUnit,
    GatedAttentionUnitOptions,
    bias_matrix,
    later_keys,
)


@dataclass
class FlashQuadOptions:
    """What can be configured of FLASH-quad alone."""

    flash_length: int = described(
        512, "FLASH-quad: the n that causal scores are divided by", at_least=1
    )


class FlashQuadState(NamedTuple):
    """State of a causal layer after ``length`` tokens, of growing size.

    key: (B, M, s); slot j holds token j of its row.
    value: (B, M, e).
    length: tokens seen, (B,), int64, at most M.
    """

    key: Tensor
    value: Tensor
    length: Tensor


@register_layer("flash_quad", FlashQuadOptions, GatedAttentionUnitOptions)
class FlashQuad(GatedAttentionUnit):
    """A = relu(q k^T / n + b_{i-j})^2; out = x + W_o (u * (A v)).

    n is the number of real tokens of the row. In a causal layer, which cannot know it,
    n is the constant ``flash_length``. Time and memory are quadratic in the length.

    Args:
        config, causal: see ``GatedAttentionUnit``.
    """

    constant_state = False
    pairs = 1

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.length = config.flash_length

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        state: FlashQuadState | None,
        return_state: bool,
    ) -> tuple[Tensor, FlashQuadState | None]:
        check_state_kind(state, FlashQuadState)
        query, key = query.squeeze(2), key.squeeze(2)
        added = real_lengths(key, key_padding_mask)
        length = self.length if self.causal else added.clamp(min=1)[:, None, None]
        if state is None:
            total = key.shape[1]
            bias = bias_matrix(self.relative_bias(total, query.dtype))
            hidden = later_keys(total, key.device) if self.causal else None
            if key_padding_mask is not None:
                pads = key_padding_mask[:, None, :]
                hidden = pads if hidden is None else hidden | pads
        else:
            total = state.key.shape[1] + key.shape[1]
            new = torch.arange(key.shape[1], device=key.device)
            slots = torch.arange(total, device=key.device)
            distance = (state.length[:, None] + new)[..., None] - slots
            bias = self.relative_bias(total, query.dtype)[distance + total - 1]
            hidden = distance < 0
            key = append_rows(state.key, key, state.length, total)
            value = append_rows(state.value, value, state.length, total)
        scores = query @ key.transpose(1, 2) / length + bias
        output = self.weights(scores, hidden) @ value
        if not return_state:
            return output, None
        seen = added if state is None else state.length + added
        return output, FlashQuadState(key, value, seen)

    def mixing_flops(self, length: int) -> float:
        """Operations a token besides the projections; see ``model_flops``."""
        keys, values = self.base_proj.out_features, self.value_proj.out_features
        return 2 * length * (keys + values)
