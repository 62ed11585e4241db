"""The bidirectional encoder with its masked-LM head in plain PyTorch (the BLM)."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops import linear_cross_entropy
from .config import EncoderConfig
from .embeddings import build_positions, token_positions
from .layers import LayerStack
from .options import check_fields
from .output_loss import loss_of_logits
from .padding import check_padding_idx, check_tokens, mask_of_pads
from .plain_modules import all_plain


class MaskedLanguageModelHead(nn.Module):
    """RoBERTa's head: norm(gelu(W x)) times the output matrix, plus a bias.

    Args:
        embed_dim: width of x.
        weight: a parameter, (vocab_size, embed_dim), shared with the embedding if it is
            tied.
        backend: of the loss, see ``ops.linear_cross_entropy``.
    """

    def __init__(self, embed_dim: int, weight: Tensor, backend: str = "auto"):
        super().__init__()
        self.backend = backend
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.layer_norm = nn.LayerNorm(embed_dim)
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(weight.shape[0]))

    def forward(self, features: Tensor) -> Tensor:
        """(..., embed_dim) -> logits (..., vocab_size)."""
        return F.linear(self._transformed(features), self.weight, self.bias)

    if TYPE_CHECKING:
        __call__ = forward

    def loss(
        self, features: Tensor, targets: Tensor, ignore_index: int
    ) -> tuple[Tensor, Tensor]:
        """The cross entropy of the logits, computed some rows at a time.

        Args:
            features: (..., embed_dim).
            targets: int64 (...).
            ignore_index: value of targets that do not count.

        Returns:
            its sum, and (...) of each target; see ``ops.linear_cross_entropy``.
        """
        x = self._transformed(features)
        return linear_cross_entropy(
            x,
            self.weight,
            targets,
            self.bias,
            ignore_index=ignore_index,
            backend=self.backend,
        )

    def _transformed(self, features: Tensor) -> Tensor:
        return self.layer_norm(F.gelu(self.dense(features)))


class MaskedLanguageModel(nn.Module):
    """Token and position embedding, bidirectional layers, masked-LM head.

    x = dropout(LayerNorm(E[t] + P[position])), zero at pads; layers; head.

    Args:
        config: e.g. ``EncoderT2Config()``, the paper's T2.
        vocab_size: entries of the vocabulary.
        padding_idx: the entry for padding.

    Raises:
        ValueError: a value of the configuration, or padding_idx, is not allowed. The
            message names the field.
    """

    def __init__(self, config: EncoderConfig, vocab_size: int, padding_idx: int = 1):
        super().__init__()
        check_fields(config)
        check_padding_idx(padding_idx, vocab_size)
        self.padding_idx, self.dropout = padding_idx, config.dropout
        self.embed_tokens = nn.Embedding(vocab_size, config.embed_dim, padding_idx)
        self.embed_positions = build_positions(config, padding_idx)
        self.embed_norm = nn.LayerNorm(config.embed_dim)
        self.stack = LayerStack(config, causal=False)
        weight = self.embed_tokens.weight
        if config.untie_output_embedding:
            weight = nn.Parameter(torch.empty_like(weight))
        self.lm_head = MaskedLanguageModelHead(config.embed_dim, weight, config.backend)
        self.apply(self._initialise)
        nn.init.normal_(self.lm_head.weight, std=0.02)
        nn.init.zeros_(self.embed_tokens.weight[padding_idx])
        if not config.untie_output_embedding:
            self.register_load_state_dict_post_hook(_tie)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        """BERT's initialisation: N(0, 0.02), zero biases, a row of zeros for pads."""
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            # layers of a registered attention may have no bias
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])

    def features(
        self,
        tokens: Tensor,
        hidden_states: list[Tensor] | None = None,
        padding: str | None = None,
        embedded: Tensor | None = None,
    ) -> Tensor:
        """Encode tokens.

        Args:
            tokens: int64 (B, N), with ``padding_idx`` at any places.
            hidden_states: a list to which the embedding and each layer's output are
                appended.
            padding: places of pads, if known ("none", "right", "anywhere"). Otherwise
                the tokens are read, and Python waits for their device.
            embedded: (B, N, embed_dim), in place of the embedding of the tokens, which
                then only mark pads.

        Returns:
            (B, N, embed_dim), undefined at pads.

        Raises:
            ValueError: tokens have another number of dimensions, or with learned
                positions N is above max_positions.
        """
        check_tokens(tokens, {2: "(batch, length)"})
        mask = mask_of_pads(tokens.eq(self.padding_idx), padding)
        x = self.embed_tokens(tokens) if embedded is None else embedded
        if self.embed_positions is not None:
            x = x + self.embed_positions(token_positions(mask, tokens)).to(x.dtype)
        x = F.dropout(self.embed_norm(x), self.dropout, self.training)
        if mask is not None:
            x = x.masked_fill(mask.unsqueeze(-1), 0)
        return self.stack(x, mask, hidden_states=hidden_states, padding=padding)[0]

    @overload
    def forward(
        self,
        tokens: Tensor,
        masked_tokens: Tensor | None = None,
        *,
        targets: None = None,
        positions: None = None,
        padding: str | None = None,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        tokens: Tensor,
        masked_tokens: None = None,
        *,
        targets: Tensor,
        positions: Tensor | None = None,
        padding: str | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        tokens: Tensor,
        masked_tokens: Tensor | None = None,
        *,
        targets: Tensor | None = None,
        positions: Tensor | None = None,
        padding: str | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits, or their loss.

        Args:
            tokens: int64 (B, N).
            masked_tokens: bool (B, N), the tokens whose logits are returned; default:
                all.
            targets: int64 (B, N), ``padding_idx`` for those that do not count.
            positions: see ``output_loss``.
            padding: see ``features``.

        Returns:
            (B, N, vocab_size), or (K, vocab_size) of the K True entries of
            ``masked_tokens``; with ``targets`` what ``output_loss`` returns.

        Raises:
            ValueError: both ``masked_tokens`` and ``targets`` are given, one of them
                has another shape than the tokens, or ``masked_tokens`` is not bool.
        """
        if targets is not None and masked_tokens is not None:
            raise ValueError(
                "masked_tokens with targets; allowed: one of them (targets count where "
                f"they are not padding_idx={self.padding_idx})"
            )
        if masked_tokens is not None:
            check_masked_tokens(masked_tokens, tokens)
        x = self.features(tokens, padding=padding)
        if targets is not None:
            return self.output_loss(x, targets, positions)
        return self.lm_head(x if masked_tokens is None else x[masked_tokens])

    if TYPE_CHECKING:
        __call__ = forward

    def output_loss(
        self, features: Tensor, targets: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The cross entropy of the targets that count.

        Args:
            features: (B, N, embed_dim).
            targets: int64 (B, N), ``padding_idx`` for those that do not count.
            positions: int64 (K,), indices of the targets that count, among all B N. By
                default they are searched, and Python waits for the device.

        Returns:
            its sum, and (K,) of each; see ``ops.linear_cross_entropy``.

        Raises:
            ValueError: the targets have another shape than the tokens.
        """
        if targets.shape != features.shape[:-1]:
            # after flattening they would belong to other tokens
            raise ValueError(
                f"targets have shape {tuple(targets.shape)}, features "
                f"{tuple(features.shape)}; allowed: {tuple(features.shape[:-1])}"
            )
        if positions is None:
            positions = target_positions(targets, self.padding_idx)
        x = features.flatten(0, -2).index_select(0, positions)
        targets = targets.flatten()[positions]
        if not all_plain(MaskedLanguageModelHead, self.lm_head):
            return loss_of_logits(self.lm_head, x, targets, self.padding_idx)
        return self.lm_head.loss(x, targets, self.padding_idx)


def target_positions(targets: Tensor, padding_idx: int) -> Tensor:
    """int64 (K,): indices of the targets that count. Waits for their device."""
    return targets.reshape(-1).ne(padding_idx).nonzero().squeeze(1)


def check_masked_tokens(masked_tokens: Tensor, tokens: Tensor) -> None:
    """Raise ValueError unless ``masked_tokens`` is bool and of the tokens' shape."""
    if masked_tokens.shape != tokens.shape or masked_tokens.dtype != torch.bool:
        # integers would be used as indices
        raise ValueError(
            f"masked_tokens are {masked_tokens.dtype} {tuple(masked_tokens.shape)}; "
            f"allowed: torch.bool {tuple(tokens.shape)}, as the tokens"
        )


def _tie(model: MaskedLanguageModel, incompatible_keys: object) -> None:
    # load_state_dict(assign=True) has given the two separate tensors
    model.lm_head.weight = model.embed_tokens.weight
