"""Linear attention with and without scaling (Katharopoulos et al., 2020)."""

from dataclasses import dataclass

from torch import Tensor

from ...ops import LinearAttentionState, linear_attention
from ..attention import Attention, LayerConfig
from ..options import Choice, FeatureMap, described
from ..registry import register_attention


class LinearNormalizer(Choice, values=("sum", "none")):
    """The divisor of a 1+elu output."""


# feature maps whose sums of scores are divisors
NOT_NEGATIVE = ("1+elu", "relu")


@dataclass
class LinearOptions:
    """What can be configured of linear attention alone."""

    linear_activation: FeatureMap = described(
        FeatureMap("1+elu"), "linear attention: feature map of queries and keys"
    )
    linear_normalizer: LinearNormalizer = described(
        LinearNormalizer("sum"),
        "linear attention: divide by the sum of the scores, or by nothing",
    )


@register_attention("linear", LinearOptions)
class LinearAttention(Attention):
    """o_i = sum_j phi(q_i) . phi(k_j) v_j / max(sum_j phi(q_i) . phi(k_j), 1e-6).

    This is the paper's equation 3 with Delta as in equation 4. With linear_normalizer
    "none" it is the "1+elu w/o scaling" of Table 1. There is no 1 / sqrt(head width)
    and no relative position. Without the divisor outputs grow with the length, and
    leave float16's range in trained models: train in float32 or bfloat16.

    Args:
        config, causal: see ``Attention``; reads ``LinearOptions``, whose
            linear_activation is phi.

    Raises:
        ValueError: linear_normalizer "sum" with a feature map that can be negative.
    """

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.feature_map = str(config.linear_activation)
        self.normalize = config.linear_normalizer == "sum"
        if self.normalize and self.feature_map not in NOT_NEGATIVE:
            raise ValueError(
                f"linear_activation={self.feature_map!r} with linear_normalizer='sum', "
                f"which divides by a sum: allowed: {', '.join(NOT_NEGATIVE)}, or "
                "linear_normalizer='none'"
            )
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
        output, state = linear_attention(
            query,
            key,
            value,
            causal=self.causal,
            feature_map=self.feature_map,
            key_padding_mask=key_padding_mask,
            normalize=self.normalize,
            initial_state=state,
            return_state=return_state,
            backend=self.backend,
        )
        return output.flatten(2), state

    def mixing_flops(self, length: int) -> float:
        return 4 * self.embed_dim * (self.head_dim + self.normalize)
