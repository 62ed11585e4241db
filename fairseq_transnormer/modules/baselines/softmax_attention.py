"""The vanilla transformer's attention (Vaswani et al., 2017) in our layers."""

from ...ops import softmax_attention
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
    def from_config(cls, config, *, causal):
        return cls(
            config.embed_dim,
            config.num_heads,
            causal=causal,
            dropout=config.attention_dropout,
        )

    def attend(
        self, query, key, value, positions, key_padding_mask, state, return_state
    ):
        output = softmax_attention(
            query,
            key,
            value,
            causal=self.causal,
            dropout_p=self.dropout if self.training else 0.0,
            key_padding_mask=key_padding_mask,
            initial_state=state,
            return_state=return_state,
        )
        output, state = output if return_state else (output, None)
        return output.flatten(2), state

    def mixing_flops(self, length: int) -> float:
        """Operations a token besides the projections; see ``model_flops``."""
        return 4 * length * self.embed_dim
