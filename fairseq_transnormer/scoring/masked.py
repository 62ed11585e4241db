"""Pseudo-log-likelihood of tokens by a masked model.

Each token is masked in turn and predicted from all others of its window (Salazar et
al., ACL 2020). Ends of lines are read and not scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderModel

from .batches import in_batches, padded
from .context import Context, Window, windows


class MaskedRow(NamedTuple):
    """A window and the place in it of the token that is masked."""

    tokens: list[int]
    masked: int


class MaskedScorer:
    """An encoder of this package with its masked-LM head.

    A window is <s> and tokens, as fairseq's masked_lm has them.

    Args:
        model: in evaluation.
        dictionary: with <mask>.
        mask: its number.
        batch_tokens: that run together, about.
    """

    carries_state = False

    def __init__(
        self,
        model: FairseqEncoderModel,
        dictionary: Dictionary,
        mask: int,
        batch_tokens: int,
    ):
        self.model, self.mask, self.batch_tokens = model, mask, batch_tokens
        self.pad, self.start = dictionary.pad(), dictionary.bos()
        self.end_of_line = dictionary.eos()
        self.longest = model.max_positions()

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def log_probs(
        self, texts: Sequence[Iterable[int]], context: Context
    ) -> Iterator[tuple[int, list[int], list[float]]]:
        """As ``CausalScorer.log_probs``, of the tokens that end no line."""
        scored = context.window - context.overlap - 1  # one less for <s>
        rows = [
            self._rows(windows(each, scored, context.overlap, [])) for each in texts
        ]
        for number, row, found in in_batches(
            rows, lambda row: len(row.tokens), self._of_rows, self.batch_tokens
        ):
            yield number, [row.tokens[row.masked]], [found]

    def _rows(self, cut: Iterable[Window]) -> Iterator[MaskedRow]:
        for window in cut:
            tokens = [self.start, *window.read, *window.scored]
            first = len(tokens) - len(window.scored)
            for place in range(first, len(tokens)):
                if tokens[place] != self.end_of_line:
                    yield MaskedRow(tokens, place)

    @torch.no_grad()
    def _of_rows(self, group: list[MaskedRow]) -> list[float]:
        inputs = padded([row.tokens for row in group], self.pad)
        numbers = torch.arange(len(group))
        places = torch.tensor([row.masked for row in group])
        targets = torch.full_like(inputs, self.pad)
        targets[numbers, places] = inputs[numbers, places]
        inputs[numbers, places] = self.mask
        device = self.device
        (_, losses), _ = self.model(
            inputs.to(device),
            targets=targets.to(device),
            target_positions=(numbers * inputs.shape[1] + places).to(device),
        )
        return (-losses).tolist()
