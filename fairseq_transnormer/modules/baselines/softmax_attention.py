"""The vanilla transformer's attention (Vaswani et al., 2017) in our layers."""

from torch import Tensor

from ...ops import KeyValueState, softmax_attention
from ..attention import Attention, LayerConfig
from ..registry import register_attention


@register_attention("softmax")
class SoftmaxAttention(Attention):
    """O = softmax(Q K^T / sqrt(head width)) V, without relative positions.

    Time is quadratic in the length, and a causal layer keeps all keys and values.

    Args:
        config, causal: see ``Attention``; reads attention_dropout.
    """

    constant_state = False

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.initialise()

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
            dropout_p=self.dropout_p,
            key_padding_mask=key_padding_mask,
            initial_state=state,
            return_state=return_state,
        )
        return output.flatten(2), state

    def mixing_flops(self, length: int) -> float:
        return 4 * length * self.embed_dim
