"""DiagAttention: softmax or ReLU attention inside blocks (section 4.2)."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..ops import BlockAttentionState, block_attention
from ..ops.attention_inputs import check_block_size, check_dropout
from .attention import Attention
from .lrpe import build_lrpe
from .norms import NormType, build_norm
from .options import Choice, described
from .registry import register_attention


class DiagActivation(Choice, values=("softmax", "relu")):
    """What DiagAttention puts its scores through."""


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

    Time and memory are linear in the length; a causal layer generates with the keys and
    values of the current block only.

    Args:
        embed_dim, num_heads, causal: see ``Attention``.
        block_size: positions in a block, the paper's w.
        activation: "softmax" (T2) or "relu" (T1).
        norm: norm of the concatenated heads; "simple_rms_norm" (T1), "none" (T2),
            "rms_norm" or "layer_norm".
        norm_eps: the norm's eps.
        dropout: probability with which an attention weight is dropped in training.
        relative_position: "lrpe" or "none".
        lrpe_base: see ``LRPE``.
        backend: see ``ops.block_attention``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool,
        block_size: int = 64,
        activation: str = "softmax",
        norm: str = "none",
        norm_eps: float = 1e-8,
        dropout: float = 0.0,
        relative_position: str = "lrpe",
        lrpe_base: float = 10000.0,
        backend: str = "auto",
    ):
        super().__init__(embed_dim, num_heads, causal=causal)
        check_block_size(block_size)
        self.block_size = block_size
        self.activation = DiagActivation(activation).value
        self.norm = build_norm(norm, embed_dim, norm_eps, backend)
        check_dropout(dropout)
        self.dropout = dropout
        self.lrpe = build_lrpe(relative_position, self.head_dim, lrpe_base, backend)
        self.backend = backend
        self.initialise(qkv_gain=1.0)

    @classmethod
    def from_config(cls, config: Any, *, causal: bool) -> "DiagAttention":
        return cls(
            config.embed_dim,
            config.num_heads,
            causal=causal,
            block_size=config.block_size,
            activation=config.diag_activation,
            norm=config.diag_norm,
            norm_eps=config.attention_norm_eps,
            dropout=config.attention_dropout,
            relative_position=config.relative_position,
            lrpe_base=config.lrpe_base,
            backend=config.backend,
        )

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
            dropout_p=self.dropout if self.training else 0.0,
            key_padding_mask=key_padding_mask,
            initial_state=state,
            return_state=return_state,
            backend=self.backend,
        )
        return self.norm(output.flatten(2)), state

    def mixing_flops(self, length: int) -> float:
        """Operations a token besides the projections; see ``model_flops``."""
        return 4 * min(self.block_size, length) * self.embed_dim
