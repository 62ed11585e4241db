"""The peer of whole models: fairseq's transformer_lm, as shipped and with SDPA."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import fairseq_transnormer.plugin  # noqa: F401 (imports fairseq, fills its registries)

# isort: split
import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.models.transformer_lm import (
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
)
from fairseq.modules import MultiheadAttention
from torch import Tensor

from .models import DROPOUT


def task_of(vocabulary: int) -> SimpleNamespace:
    """What models and criterions ask of a task."""
    dictionary = Dictionary()
    while len(dictionary) < vocabulary:
        dictionary.add_symbol(str(len(dictionary)))
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)


def build_transformer(
    width: int, heads: int, layers: int, vocabulary: int, max_positions: int
) -> TransformerLanguageModel:
    """Pre-norm, tied, FFN of 4 width, as in the paper; for evaluation.

    max_positions: its table of positions is made that long at once, since a longer
    input would make it anew in each step.
    """
    config = TransformerLanguageModelConfig(
        decoder_embed_dim=width,
        decoder_input_dim=width,
        decoder_output_dim=width,
        decoder_ffn_embed_dim=4 * width,
        decoder_layers=layers,
        decoder_attention_heads=heads,
        decoder_normalize_before=True,
        share_decoder_input_output_embed=True,
        dropout=DROPOUT,
        max_target_positions=max_positions,
        tokens_per_sample=max_positions,
    )
    return TransformerLanguageModel.build_model(config, task_of(vocabulary)).eval()


class CausalSelfAttention(MultiheadAttention):
    """fairseq's self-attention of a decoder, without padding and decoding states.

    fairseq hands its attention a mask of length x length numbers, which keeps torch
    from its flash kernels. ``is_causal=True`` says the same.
    """

    @classmethod
    def like(cls, attention: MultiheadAttention) -> CausalSelfAttention:
        """One with the same sizes, weights and dropout."""
        ours = cls(
            attention.embed_dim,
            attention.num_heads,
            dropout=attention.dropout_module.p,
            self_attention=True,
        ).to(attention.q_proj.weight)
        ours.load_state_dict(attention.state_dict())
        return ours.train(attention.training)

    def forward(self, query: Tensor, **unused):
        """(N, B, C) -> (N, B, C) and None."""
        q, k, v = (
            projection(query)
            .unflatten(-1, (self.num_heads, self.head_dim))
            .permute(1, 2, 0, 3)  # B, H, N, D
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        dropout = self.dropout_module.p if self.training else 0.0
        output = F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=True
        )
        return self.out_proj(output.permute(2, 0, 1, 3).flatten(2)), None


def with_sdpa(model: TransformerLanguageModel) -> TransformerLanguageModel:
    """A copy of the model with ``CausalSelfAttention`` and without the mask."""
    twin = copy.deepcopy(model)
    for layer in twin.decoder.layers:
        layer.self_attn = CausalSelfAttention.like(layer.self_attn)
    twin.decoder.buffered_future_mask = lambda tensor: None
    return twin


def sample_of(tokens: int, length: int, vocabulary: int, device: str) -> dict:
    """A batch without pads, as the task language_modeling makes it."""
    shape = (tokens // length, length)
    words = torch.randint(4, vocabulary, (2, *shape), device=device)
    lengths = torch.full(shape[:1], length, device=device)
    return {
        "net_input": {"src_tokens": words[0], "src_lengths": lengths},
        "target": words[1],
        "ntokens": tokens,
        "nsentences": shape[0],
    }
