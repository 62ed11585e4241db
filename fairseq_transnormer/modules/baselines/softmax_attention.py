"""The vanilla transformer's attention (Vaswani et al., 2017) in our layers."""

from typing import Any

from torch import Tensor

from ...ops import KeyValueState, softmax_attention
from ..attention import QKV_GAIN_OF_FAIRSEQ, Attention
from ..registry import register_attention


@register_attention("softmax")
class SoftmaxAttention(Attention):
    """O = softmax(Q K^T / sqrt(head width)) V, without relative positions.

    Time is quadratic in the length, and a causal layer keeps all keys and values.

    Args:
        embed_dim, num_heads, causal: see ``Attention``.
        dropout: probability with which an attention weight is dropped in training.
    """

    constant_state = False

    def __init__(
        self, embed_dim: int, num_heads: int, *, causal: bool, dropout: float = 0.0
    ):
        super().__init__(embed_dim, num_heads, causal=causal)
        self.dropout = dropout
        self.initialise(qkv_gain=QKV_GAIN_OF_FAIRSEQ)

    @classmethod
    def from_config(cls, config: Any, *, causal: bool) -> "SoftmaxAttention":
        return cls(
            config.embed_dim,
            config.num_heads,
            causal=causal,
            dropout=config.attention_dropout,
        )

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: Tensor,
        key_padding_mask: Tensor | None,
        state: KeyValueState | None,
        return_state: bool,
    ) -> tuple[Tensor, KeyValueState | None]:
        output, state = softmax_attention(
            query,
            key,
            value,
            causal=self.causal,
            dropout_p=self.dropout if self.training else 0.0,
            key_padding_mask=key_padding_mask,
            initial_state=state,
            return_state=return_state,
        )
        return output.flatten(2), state

    def mixing_flops(self, length: int) -> float:
        """Operations a token besides the projections; see ``model_flops``."""
        return 4 * length * self.embed_dim
