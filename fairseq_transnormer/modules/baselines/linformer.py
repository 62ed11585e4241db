"""Linformer: keys and values projected along the length (Wang et al., 2020)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...ops import softmax_attention
from ..attention import EncoderAttention, LayerConfig
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
        "Linformer: longest input; the projection has one column per position",
        at_least=1,
    )


@register_attention("linformer", LinformerOptions)
class LinformerAttention(EncoderAttention):
    """O = softmax(Q (E K)^T / sqrt(d)) E V, with a trained E of each head.

    E K is the sum over the row's tokens j of column j of E times k_j, features x d.
    Time and memory are linear in the length.

    Args:
        config, causal: see ``EncoderAttention``; reads ``LinformerOptions`` and
            attention_dropout.

    Raises:
        ValueError: (in forward) an input is longer than linformer_length.
    """

    longest_input: int

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.longest_input = config.linformer_length
        shape = (self.num_heads, config.linformer_features, self.longest_input)
        self.length_proj = nn.Parameter(torch.empty(shape))
        nn.init.normal_(self.length_proj, std=0.02)
        self.initialise()

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
            dropout_p=self.dropout_p,
        )[0]
