"""DiagAttention and NormAttention in one layer: the paper's Table 12."""

from torch import Tensor, nn

from ..ops import PairState
from ..ops.inputs import check_state_kind
from .attention import Attention, LayerConfig
from .diag_attention import DiagAttention, DiagOptions
from .norm_attention import NormAttention, NormOptions
from .registry import register_attention


class AttentionPair(nn.Module):
    """Two complete attentions, in sequence or in parallel.

    Args:
        config, causal: of both, see ``Attention``.
    """

    kinds: tuple[type[Attention], type[Attention]] = (DiagAttention, NormAttention)
    parallel = False
    constant_state = True

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__()
        self.first, self.second = (kind(config, causal=causal) for kind in self.kinds)

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        state: PairState | None = None,
        return_state: bool = False,
    ) -> tuple[Tensor, PairState | None]:
        """As ``Attention.forward``; the state has those of both."""
        check_state_kind(state, PairState)
        one, other = (None, None) if state is None else state
        y, one = self.first(x, key_padding_mask, one, return_state)
        z = x if self.parallel else y
        z, other = self.second(z, key_padding_mask, other, return_state)
        pair = None if one is None or other is None else PairState(one, other)
        return y + z if self.parallel else z, pair

    def mixing_flops(self, length: int) -> float:
        """Operations per token without the projections; see ``model_flops``."""
        return 0.0  # its attentions count themselves


@register_attention("diag_then_norm", DiagOptions, NormOptions)
class DiagThenNorm(AttentionPair):
    """NormAttention(DiagAttention(x)): the output of one is the input of the other."""


@register_attention("norm_then_diag", DiagOptions, NormOptions)
class NormThenDiag(AttentionPair):
    """DiagAttention(NormAttention(x))."""

    kinds = (NormAttention, DiagAttention)


@register_attention("diag_beside_norm", DiagOptions, NormOptions)
class ParallelDiagNorm(AttentionPair):
    """Both read x; one projection maps their concatenated outputs to its width.

    W [diag; norm] + b is the sum of two output projections, and is computed as that
    sum. Each attention keeps its own projection, with its own bias.
    """

    parallel = True
