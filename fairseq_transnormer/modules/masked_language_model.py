"""The bidirectional encoder with its masked-LM head in plain PyTorch (the BLM)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import EncoderConfig
from .embeddings import LearnedPositions, SinusoidalPositions, token_positions
from .layers import LayerStack


class MaskedLanguageModelHead(nn.Module):
    """RoBERTa's head: norm(gelu(W x)) times the output matrix, plus a bias.

    Args:
        embed_dim: width of x.
        weight: (vocab_size, embed_dim), shared with the embedding if it is tied.
    """

    def __init__(self, embed_dim: int, weight: nn.Parameter):
        super().__init__()
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.layer_norm = nn.LayerNorm(embed_dim)
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(weight.shape[0]))

    def forward(self, features: Tensor) -> Tensor:
        """(..., embed_dim) -> logits (..., vocab_size)."""
        x = self.layer_norm(F.gelu(self.dense(features)))
        return F.linear(x, self.weight, self.bias)


class MaskedLanguageModel(nn.Module):
    """Token and position embedding, bidirectional layers, masked-LM head.

    x = dropout(LayerNorm(E[t] + P[position])), zero at pads; layers; head.

    Args:
        config: e.g. ``EncoderT2Config()``, the paper's T2.
        vocab_size: entries of the vocabulary.
        padding_idx: the entry that is no token.

    Raises:
        ValueError: a value of the configuration does not fit; the field is named.
    """

    def __init__(self, config: EncoderConfig, vocab_size: int, padding_idx: int = 1):
        super().__init__()
        self.padding_idx, self.dropout = padding_idx, config.dropout
        self.embed_tokens = nn.Embedding(vocab_size, config.embed_dim, padding_idx)
        self.embed_positions = None
        if config.positional_embedding == "learned":
            self.embed_positions = LearnedPositions(
                config.max_positions, config.embed_dim, padding_idx
            )
        elif config.positional_embedding == "sinusoidal":
            self.embed_positions = SinusoidalPositions(config.embed_dim, padding_idx)
        self.embed_norm = nn.LayerNorm(config.embed_dim)
        self.stack = LayerStack(config, causal=False)
        weight = self.embed_tokens.weight
        if config.untie_output_embedding:
            weight = nn.Parameter(torch.empty_like(weight))
        self.lm_head = MaskedLanguageModelHead(config.embed_dim, weight)
        self.apply(self._initialise)
        nn.init.normal_(self.lm_head.weight, std=0.02)
        nn.init.zeros_(self.embed_tokens.weight[padding_idx])

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        """BERT's initialisation: N(0, 0.02), zero biases."""
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.weight[module.padding_idx])

    def features(
        self, tokens: Tensor, hidden_states: list[Tensor] | None = None
    ) -> Tensor:
        """Encode tokens.

        Args:
            tokens: int64 (B, N); ``padding_idx`` may stand anywhere.
            hidden_states: a list to which the embedding and each layer's output are
                appended.

        Returns:
            (B, N, embed_dim); values at pads carry no meaning.

        Raises:
            ValueError: with learned positions, N is above max_positions.
        """
        mask = tokens.eq(self.padding_idx)
        mask = mask if mask.any() else None
        x = self.embed_tokens(tokens)
        if self.embed_positions is not None:
            x = x + self.embed_positions(token_positions(mask, tokens)).to(x.dtype)
        x = F.dropout(self.embed_norm(x), self.dropout, self.training)
        if mask is not None:
            x = x.masked_fill(mask.unsqueeze(-1), 0)
        return self.stack(x, mask, hidden_states=hidden_states)

    def forward(self, tokens: Tensor, masked_tokens: Tensor | None = None) -> Tensor:
        """Logits (B, N, vocab_size), or (K, vocab_size) at the K True entries of
        ``masked_tokens``, bool (B, N)."""
        x = self.features(tokens)
        return self.lm_head(x if masked_tokens is None else x[masked_tokens])
