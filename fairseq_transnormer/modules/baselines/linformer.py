"""Linformer: keys and values projected along the length (Wang et al., 2020)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...ops import softmax_attention
from ..attention import QKV_GAIN_OF_FAIRSEQ, EncoderAttention
from ..options import described
from ..registry import register_attention


@dataclass
class LinformerOptions:
    """What can be configured of Linformer alone."""

    linformer_features: int = described(
        128, "Linformer: keys and values of a head after the projection", at_least=1
    )
    linformer_length: int = described(
        4096,
        "Linformer: longest input; the projection has a column a position",
        at_least=1,
    )


@register_attention("linformer", LinformerOptions)
class LinformerAttention(EncoderAttention):
    """O = softmax(Q (E K)^T / sqrt(d)) E V, with a trained E of each head.

    E K is the sum over the row's tokens j of column j of E times k_j, features x d.
    Time and memory are linear in the length.

    Args:
        embed_dim, num_heads, causal: see ``EncoderAttention``.
        features, length: see ``LinformerOptions``.
        dropout: probability with which an attention weight is dropped in training.

    Raises:
        ValueError: (in forward) an input is longer than ``length``.
    """

    longest_input: int

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool,
        features: int = 128,
        length: int = 4096,
        dropout: float = 0.0,
    ):
        super().__init__(embed_dim, num_heads, causal=causal)
        self.longest_input, self.dropout = length, dropout
        self.length_proj = nn.Parameter(torch.empty(num_heads, features, length))
        nn.init.normal_(self.length_proj, std=0.02)
        self.initialise(qkv_gain=QKV_GAIN_OF_FAIRSEQ)

    @classmethod
    def from_config(cls, config: Any, *, causal: bool) -> "LinformerAttention":
        return cls(
            config.embed_dim,
            config.num_heads,
            causal=causal,
            features=config.linformer_features,
            length=config.linformer_length,
            dropout=config.attention_dropout,
        )

    def encode(
        self, query: Tensor, key: Tensor, value: Tensor, pads: Tensor | None
    ) -> Tensor:
        length = key.shape[1]
        if length > self.longest_input:
            raise ValueError(
                f"input of {length} tokens; allowed: up to "
                f"linformer_length={self.longest_input}"
            )
        projection = self.length_proj[:, :, :length].to(key.dtype)
        key, value = (
            torch.einsum("hfn,bnhd->bfhd", projection, x) for x in (key, value)
        )
        return softmax_attention(
            query,
            key,
            value,
            causal=False,
            dropout_p=self.dropout if self.training else 0.0,
        )[0]
