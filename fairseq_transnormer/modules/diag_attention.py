"""DiagAttention: softmax or ReLU attention inside blocks (section 4.2)."""

from dataclasses import dataclass

from torch import Tensor

from ..ops import BlockAttentionState, block_attention
from .attention import Attention, LayerConfig
from .lrpe import build_lrpe
from .norms import NormType, build_norm
from .options import Choice, described
from .registry import register_attention


class DiagActivation(Choice, values=("softmax", "relu")):
    """The activation of DiagAttention's scores."""


@dataclass
class DiagOptions:
    """What can be configured of DiagAttention alone."""

    block_size: int = described(64, "DiagAttention: positions in a block", at_least=1)
    diag_activation: DiagActivation = described(
        DiagActivation("softmax"), "DiagAttention: activation of the scores"
    )
    diag_norm: NormType = described(
        NormType("none"), "DiagAttention: norm of the concatenated heads"
    )


@register_attention("diag", DiagOptions)
class DiagAttention(Attention):
    """Attention inside non-overlapping blocks, with LRPE inside the block.

    Time and memory are linear in the length. A causal layer generates with the keys and
    values of the current block only.

    Args:
        config, causal: see ``Attention``. block_size is the paper's w. diag_activation
            is "softmax" (T2) or "relu" (T1). diag_norm ("none" in T2,
            "simple_rms_norm" in T1) and attention_norm_eps are the norm's.
            relative_position and lrpe_base are LRPE's. attention_dropout drops weights.
    """

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.block_size = config.block_size
        self.activation = str(config.diag_activation)
        self.norm = build_norm(
            config.diag_norm, self.embed_dim, config.attention_norm_eps, self.backend
        )
        self.lrpe = build_lrpe(config, self.head_dim)
        self.initialise(qkv_gain=1.0)

    def inputs(self, x: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        if self.lrpe is None:
            return self.project(x)
        return self.encoded(x, positions % self.block_size, self.lrpe)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: Tensor,
        key_padding_mask: Tensor | None,
        state: BlockAttentionState | None,
        return_state: bool,
    ) -> tuple[Tensor, BlockAttentionState | None]:
        output, state = block_attention(
            query,
            key,
            value,
            block_size=self.block_size,
            causal=self.causal,
            activation=self.activation,
            dropout_p=self.dropout_p,
            key_padding_mask=key_padding_mask,
            initial_state=state,
            return_state=return_state,
            backend=self.backend,
        )
        return self.norm(output.flatten(2)), state

    def mixing_flops(self, length: int) -> float:
        return 4 * min(self.block_size, length) * self.embed_dim
