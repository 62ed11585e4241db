"""DiagAttention and NormAttention in one layer: the paper's Table 12."""

from torch import Tensor, nn

from ..ops import PairState
from .diag_attention import DiagAttention
from .norm_attention import NormAttention
from .registry import register_attention


class AttentionPair(nn.Module):
    """Two whole attentions; a subclass says how.

    Args:
        first, second: ``Attention`` modules of one width.
    """

    kinds = (DiagAttention, NormAttention)
    constant_state = True

    def __init__(self, first: nn.Module, second: nn.Module):
        super().__init__()
        self.first, self.second = first, second

    @classmethod
    def from_config(cls, config, *, causal):
        return cls(*(kind.from_config(config, causal=causal) for kind in cls.kinds))

    def mixing_flops(self, length: int) -> float:
        """Operations a token besides the projections; see ``model_flops``."""
        return 0.0  # its attentions count themselves


@register_attention("diag_then_norm")
class DiagThenNorm(AttentionPair):
    """NormAttention(DiagAttention(x)): the output of one is the input of the other."""

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        state: PairState | None = None,
        return_state: bool = False,
    ):
        """As ``Attention.forward``; the state is that of both."""
        states = (None, None) if state is None else state
        x = self.first(x, key_padding_mask, states[0], return_state)
        x, first = x if return_state else (x, None)
        x = self.second(x, key_padding_mask, states[1], return_state)
        x, second = x if return_state else (x, None)
        return (x, PairState(first, second)) if return_state else x


@register_attention("norm_then_diag")
class NormThenDiag(DiagThenNorm):
    """DiagAttention(NormAttention(x))."""

    kinds = (NormAttention, DiagAttention)


@register_attention("diag_beside_norm")
class DiagBesideNorm(AttentionPair):
    """Both read x; one projection brings their concatenated outputs back to its width.

    W [diag; norm] + b is the sum of two output projections, and is computed as that:
    each attention keeps its own, with its own bias.
    """

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        state: PairState | None = None,
        return_state: bool = False,
    ):
        """As ``Attention.forward``; the state is that of both."""
        states = (None, None) if state is None else state
        parts = [
            attention(x, key_padding_mask, own, return_state)
            for attention, own in zip((self.first, self.second), states, strict=True)
        ]
        if not return_state:
            return parts[0] + parts[1]
        (one, first), (other, second) = parts
        return one + other, PairState(first, second)
