"""NormAttention: linear attention, normalised instead of scaled (section 4.1)."""

from dataclasses import dataclass

from torch import Tensor

from ..ops import LinearAttentionState, linear_attention
from .attention import Attention, LayerConfig
from .lrpe import build_lrpe
from .norms import NormType, build_norm
from .options import FeatureMap, described
from .registry import register_attention


@dataclass
class NormOptions:
    """What can be configured of NormAttention alone."""

    norm_attention_activation: FeatureMap = described(
        FeatureMap("1+elu"), "NormAttention: feature map of queries and keys"
    )
    norm_attention_norm: NormType = described(
        NormType("simple_rms_norm"), "NormAttention: norm of the concatenated heads"
    )


@register_attention("norm", NormOptions)
class NormAttention(Attention):
    """O = norm(phi(Q) (phi(K)^T V)), the paper's equation 13, with LRPE after phi.

    Time and memory are linear in the length. A causal layer generates with a state of
    (B, H, D, D) numbers at any length. The norm is over the full width, heads
    concatenated.

    Args:
        config, causal: see ``Attention``. norm_attention_activation is phi: "elu" (T1),
            "1+elu" (T2), "relu" or "identity"; norm_attention_norm and
            attention_norm_eps are the norm's; relative_position and lrpe_base are
            LRPE's.
    """

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.feature_map = str(config.norm_attention_activation)
        self.norm = build_norm(
            config.norm_attention_norm,
            self.embed_dim,
            config.attention_norm_eps,
            self.backend,
        )
        self.lrpe = build_lrpe(config, self.head_dim)
        self.initialise()

    def inputs(self, x: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        if self.lrpe is None:
            return self.project(x)
        return self.encoded(x, positions, self.lrpe, self.feature_map)

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
        # LRPE comes after it
        feature_map = self.feature_map if self.lrpe is None else "identity"
        output, state = linear_attention(
            query,
            key,
            value,
            causal=self.causal,
            feature_map=feature_map,
            key_padding_mask=key_padding_mask,
            initial_state=state,
            return_state=return_state,
            backend=self.backend,
        )
        return self.norm(output.flatten(2)), state

    def mixing_flops(self, length: int) -> float:
        return 4 * self.embed_dim * self.head_dim
