"""A classifier of sequences, or of pairs of them, in plain PyTorch (Appendix E)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import ClassifierConfig
from .embeddings import build_positions, token_positions
from .encoder_classifier import mean_over_tokens
from .layers import LayerStack
from .options import check_fields
from .padding import check_tokens, mask_of_pads

EMBEDDING_STD = 0.02


class SequenceClassifier(nn.Module):
    """Token and position embedding, bidirectional layers, mean, two linear layers.

    x = dropout(E[t] + P[position]); layers; f = mean over the real tokens;
    logits = W2 relu(W1 f). For pairs one encoder reads both sequences, and the head
    sees [a, b, a * b, a - b].

    Args:
        config: e.g. ``ClassifierT2Config()``, the paper's T2 for the Long-Range Arena.
        vocabulary: token ids.
        classes: outputs.
        sequences: of an example, 1 or 2.

    Raises:
        ValueError: a value of the configuration does not fit; the field is named.
    """

    def __init__(
        self,
        config: ClassifierConfig,
        vocabulary: int,
        classes: int,
        sequences: int = 1,
    ):
        super().__init__()
        if sequences not in (1, 2):
            raise ValueError(f"sequences={sequences}; allowed: 1, 2")
        check_fields(config)
        self.sequences, self.dropout = sequences, config.dropout
        # every id is a token, 0 as well: no padding index
        self.embed_tokens = nn.Embedding(vocabulary, config.embed_dim)
        self.embed_positions = build_positions(config, None)
        for module in (self.embed_tokens, self.embed_positions):
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=EMBEDDING_STD)
        self.stack = LayerStack(config, causal=False)
        width = config.embed_dim * (1 if sequences == 1 else 4)
        self.head = nn.Sequential(
            nn.Linear(width, config.classifier_dim),
            nn.ReLU(),
            nn.Linear(config.classifier_dim, classes),
        )

    def features(
        self, tokens: Tensor, lengths: Tensor, padding: str | None = None
    ) -> Tensor:
        """The mean of a sequence's real tokens after all layers.

        Args:
            tokens: int64 (B, N); values after a row's end do not matter.
            lengths: int64 (B,), the real tokens of each row, 1 or more.
            padding: "none" or "right", if it is known whether rows are shorter than N.
                Otherwise the lengths are read, and Python waits for their device.

        Returns:
            (B, embed_dim).

        Raises:
            ValueError: the tokens have another number of dimensions or are no integers,
                N is more than the positions or an attention allow, or the lengths do
                not fit. Their values are checked only without ``padding``.
        """
        check_tokens(tokens, {2: "(batch, length)"})
        self._check_lengths(tokens, lengths, looks=padding is None)
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        pads = positions >= lengths[:, None]
        mask = mask_of_pads(pads, padding)
        # what is there may be no token, such as -1
        x = self.embed_tokens(tokens if mask is None else tokens.masked_fill(mask, 0))
        if self.embed_positions is not None:
            x = x + self.embed_positions(token_positions(mask, tokens)).to(x.dtype)
        x = F.dropout(x, self.dropout, self.training)
        x, _ = self.stack(x, mask, padding="right")
        return mean_over_tokens(x, ~pads)[:, 0]

    @staticmethod
    def _check_lengths(tokens: Tensor, lengths: Tensor, looks: bool) -> None:
        rows, longest = tokens.shape
        if lengths.shape != (rows,):
            raise ValueError(
                f"lengths have shape {tuple(lengths.shape)}; allowed: ({rows},)"
            )
        if looks and not ((lengths >= 1) & (lengths <= longest)).all():
            raise ValueError(
                f"lengths={lengths.tolist()}; allowed: 1 to {longest} each, the "
                "tokens' width"
            )

    def forward(
        self,
        tokens: tuple[Tensor, ...],
        lengths: tuple[Tensor, ...],
        padding: tuple[str | None, ...] | None = None,
    ) -> Tensor:
        """Logits.

        Args:
            tokens: int64 (B, N), for each sequence of an example.
            lengths: int64 (B,), for each sequence.
            padding: for each sequence, see ``features``.

        Returns:
            (B, classes).

        Raises:
            ValueError: another number of sequences than the model has; see
                ``features``.
        """
        padding = padding or (None,) * len(tokens)
        inputs = zip(tokens, lengths, padding, strict=True)
        pooled = [self.features(*each) for each in inputs]
        if self.sequences == 2:
            a, b = pooled
            pooled = [torch.cat((a, b, a * b, a - b), dim=-1)]
        (x,) = pooled
        return self.head(x)

    if TYPE_CHECKING:
        __call__ = forward
