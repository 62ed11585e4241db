"""The causal language model in plain PyTorch (the paper's ALM)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops import linear_cross_entropy
from ..ops.states import State
from .config import LanguageModelConfig
from .embeddings import build_positions, token_positions
from .layers import LayerStack
from .options import check_fields
from .output_loss import loss_of_logits
from .padding import check_padding_idx, check_tokens, mask_of_pads
from .plain_modules import all_plain


class CausalLanguageModel(nn.Module):
    """Token embedding and positions, causal layers, and an output over the vocabulary.

    x = dropout(sqrt(d) E[t] + position); layers; logits = norm(x) E^T. If several
    tokens share a position, E[t] is the sum of their embeddings, without pads.

    Args:
        config: e.g. ``LanguageModelT2Config()``, the paper's T2.
        vocab_size: entries of the vocabulary.
        padding_idx: the entry for padding.

    Raises:
        ValueError: a value of the configuration, or padding_idx, is not allowed. The
            message names the field.
    """

    def __init__(
        self, config: LanguageModelConfig, vocab_size: int, padding_idx: int = 1
    ):
        super().__init__()
        check_fields(config)
        check_padding_idx(padding_idx, vocab_size)
        if config.positional_embedding == "learned":
            raise ValueError(
                "positional_embedding='learned'; allowed for a causal model, which has "
                "no maximum length: sinusoidal, none"
            )
        self.padding_idx, self.dropout = padding_idx, config.dropout
        self.backend = config.backend
        self.embed_tokens = nn.Embedding(vocab_size, config.embed_dim, padding_idx)
        nn.init.normal_(self.embed_tokens.weight, std=config.embed_dim**-0.5)
        nn.init.zeros_(self.embed_tokens.weight[padding_idx])
        self.embed_scale = (
            1.0 if config.no_scale_embedding else math.sqrt(config.embed_dim)
        )
        self.embed_positions = build_positions(config, padding_idx)
        self.stack = LayerStack(config, causal=True)
        self.output_projection = self.output_bias = None
        if config.untie_output_embedding:
            self.output_projection = nn.Linear(
                config.embed_dim, vocab_size, bias=config.output_bias
            )
            nn.init.normal_(self.output_projection.weight, std=config.embed_dim**-0.5)
            if config.output_bias:
                nn.init.zeros_(self.output_projection.bias)
        elif config.output_bias:
            self.output_bias = nn.Parameter(torch.zeros(vocab_size))

    @overload
    def forward(
        self,
        tokens: Tensor,
        states: tuple[State, ...] | None = None,
        return_states: Literal[False] = False,
        *,
        targets: None = None,
        padding: str | None = None,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        tokens: Tensor,
        states: tuple[State, ...] | None = None,
        *,
        return_states: Literal[True],
        targets: None = None,
        padding: str | None = None,
    ) -> tuple[Tensor, tuple[State, ...]]: ...

    @overload
    def forward(
        self,
        tokens: Tensor,
        states: tuple[State, ...] | None = None,
        return_states: Literal[False] = False,
        *,
        targets: Tensor,
        padding: str | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        tokens: Tensor,
        states: tuple[State, ...] | None = None,
        return_states: bool = False,
        *,
        targets: Tensor | None = None,
        padding: str | None = None,
    ) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, tuple[State, ...]]:
        """Logits of the next token at each position, or their loss.

        Args:
            tokens: int64 (B, N), with ``padding_idx`` at any places. A single column
                after ``states`` is read as one real token per row. Or (B, N, K), K
                tokens per position, filled with ``padding_idx``; the first of them
                decides whether the position is padding.
            states: result of an earlier call with ``return_states``; ``tokens`` then
                continue those rows. They are consumed: clone them to keep them.
            return_states: also return the states. Their size is constant if each
                layer's ``constant_state`` is True.
            targets: int64 (B, N), the next tokens, ``padding_idx`` for those that do
                not count; not together with states.
            padding: places of pads, if known ("none", "right", "anywhere"). Otherwise
                the tokens are read, and Python waits for their device.

        Returns:
            (B, N, vocab_size), and the states on request; with ``targets`` the result
            of ``output_loss``.

        Raises:
            ValueError: tokens have another number of dimensions, both states and the
                loss are requested, or given states are of another number of layers or
                rows.
        """
        if targets is not None:
            if return_states:
                raise ValueError(
                    "targets with return_states=True; allowed: one of them"
                )
            x, _ = self.features(tokens, states, padding=padding)
            return self.output_loss(x, targets)
        x, new_states = self.features(tokens, states, return_states, padding=padding)
        logits = self.output(x)
        return logits if new_states is None else (logits, new_states)

    if TYPE_CHECKING:
        __call__ = forward

    def features(
        self,
        tokens: Tensor,
        states: tuple[State, ...] | None = None,
        return_states: bool = False,
        hidden_states: list[Tensor] | None = None,
        padding: str | None = None,
        embedded: Tensor | None = None,
    ) -> tuple[Tensor, tuple[State, ...] | None]:
        """``forward`` without the output layer.

        hidden_states: a list to which the embedding and each layer's output are
            appended.
        embedded: (B, N, embed_dim), in place of the embedding of the tokens (B, N),
            which then only mark pads.

        Returns:
            (B, N, embed_dim), and the new states with ``return_states``, else None.

        Raises:
            ValueError: see ``forward``.
        """
        check_tokens(tokens, {2: "(batch, length)", 3: "(batch, length, K)"})
        if states is not None:
            # rows would be broadcast to those of their positions
            self.stack.check_states(states, len(tokens))
        mask = None
        # a decoding step has one real token per row: no read of the values, no wait
        if states is None or tokens.shape[1] > 1:
            first = tokens if tokens.dim() == 2 else tokens[..., 0]
            mask = mask_of_pads(first.eq(self.padding_idx), padding)
        if embedded is None:
            embedded = self.embed_tokens(tokens)
        if tokens.dim() == 3:
            # a tied output layer trains the pad's row, too
            pads = tokens.eq(self.padding_idx).unsqueeze(-1)
            embedded = embedded.masked_fill(pads, 0).sum(2)
        x = self.embed_scale * embedded
        if self.embed_positions is not None:
            positions = token_positions(mask, tokens)
            if states is not None:
                positions = states[0].length[:, None] + positions
            x = x + self.embed_positions(positions).to(x.dtype)
        x = F.dropout(x, self.dropout, self.training)
        return self.stack(x, mask, states, return_states, hidden_states, padding)

    def output(self, features: Tensor) -> Tensor:
        """(..., embed_dim) -> logits (..., vocab_size)."""
        if self.output_projection is not None:
            return self.output_projection(features)
        return F.linear(features, self._tied_weight(features), self.output_bias)

    def output_loss(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The cross entropy of ``output``, some rows of logits at a time.

        An output layer that was replaced or has hooks computes all of them.

        Args:
            features: (..., embed_dim).
            targets: int64 (...), ``padding_idx`` for those that do not count.

        Returns:
            its sum, and (...) of each target; see ``ops.linear_cross_entropy``.
        """
        layer, pad = self.output_projection, self.padding_idx
        if layer is None:
            weight, bias = self._tied_weight(features), self.output_bias
        elif all_plain(nn.Linear, layer, with_bias=False):
            weight, bias = layer.weight, layer.bias
        else:
            return loss_of_logits(layer, features, targets, pad)
        return linear_cross_entropy(
            features, weight, targets, bias, ignore_index=pad, backend=self.backend
        )

    def _tied_weight(self, features: Tensor) -> Tensor:
        """The embedding's weight, which must be on the device of the features."""
        weight = self.embed_tokens.weight
        if weight.device != features.device:
            # torch would multiply by a weight on "meta", and return arbitrary memory
            raise ValueError(
                f"embed_tokens.weight is on {weight.device}, and the output layer, "
                f"which is tied to it, gets features on {features.device}; allowed: "
                "one device (embed_tokens not offloaded, and where the last layer is), "
                "or untie_output_embedding=True"
            )
        return weight
