"""NormAttention: linear attention, normalised instead of scaled (section 4.1)."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..ops import LinearAttentionState, linear_attention
from .attention import QKV_GAIN_OF_FAIRSEQ, Attention
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

    Time and memory are linear in the length; a causal layer generates with a state of
    (B, H, D, D) numbers, whatever the length. The norm goes over the full width, heads
    concatenated.

    Args:
        embed_dim, num_heads, causal: see ``Attention``.
        activation: phi; "elu" (T1), "1+elu" (T2), "relu" or "identity".
        norm: "simple_rms_norm", "rms_norm", "layer_norm" or "none".
        norm_eps: the norm's eps.
        relative_position: "lrpe" or "none".
        lrpe_base: see ``LRPE``.
        backend: see ``ops.linear_attention``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool,
        activation: str = "1+elu",
        norm: str = "simple_rms_norm",
        norm_eps: float = 1e-8,
        relative_position: str = "lrpe",
        lrpe_base: float = 10000.0,
        backend: str = "auto",
    ):
        super().__init__(embed_dim, num_heads, causal=causal)
        self.feature_map = FeatureMap(activation).value
        self.norm = build_norm(norm, embed_dim, norm_eps, backend)
        self.lrpe = build_lrpe(relative_position, self.head_dim, lrpe_base, backend)
        self.backend = backend
        self.initialise(qkv_gain=QKV_GAIN_OF_FAIRSEQ)

    @classmethod
    def from_config(cls, config: Any, *, causal: bool) -> "NormAttention":
        return cls(
            config.embed_dim,
            config.num_heads,
            causal=causal,
            activation=config.norm_attention_activation,
            norm=config.norm_attention_norm,
            norm_eps=config.attention_norm_eps,
            relative_position=config.relative_position,
            lrpe_base=config.lrpe_base,
            backend=config.backend,
        )

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
        """Operations a token besides the projections; see ``model_flops``."""
        return 4 * self.embed_dim * self.head_dim
