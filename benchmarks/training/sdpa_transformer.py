"""fairseq's transformer_lm with its self-attention through torch's fused kernels.

fairseq hands its attention a mask of length x length numbers, which keeps torch from
its flash kernels. ``is_causal=True`` says the same: same weights, same output.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.modules import MultiheadAttention
from torch import Tensor


class CausalSelfAttention(MultiheadAttention):
    """fairseq's self-attention of a decoder, without padding and decoding states."""

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

    def forward(self, query: Tensor, key_padding_mask: Tensor | None = None, **unused):
        """query (N, B, C) -> (N, B, C) and None; a mask of pads is not supported."""
        if key_padding_mask is not None:
            raise NotImplementedError("key_padding_mask; allowed: None")
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


@torch.no_grad()
def relative_difference(
    model: TransformerLanguageModel, twin: TransformerLanguageModel, tokens: Tensor
) -> float:
    """RMS of the difference of both models' features, by the RMS of the first's.

    Without dropout; tokens: int64 (B, N), no pads.
    """
    features = []
    for each in (model, twin):
        training = each.training
        x, _ = each.eval().decoder.extract_features(tokens, encoder_out=None)
        each.train(training)
        features.append(x.float())
    expected, actual = features
    return ((actual - expected).norm() / expected.norm()).item()
