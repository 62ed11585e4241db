"""Log-probabilities of tokens by a causal model.

Letters: B texts or windows, N tokens of the longest, C width, R tokens that are scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import torch
from fairseq.models import FairseqLanguageModel
from torch import Tensor

from ..generation.prefill import LOGITS_AT_ONCE
from ..plugin.models.language_model import TransNormerDecoder
from .batches import in_batches, padded
from .context import Context, Window, windows


class CausalScorer:
    """A language model of this package, or fairseq's transformer_lm.

    The first token of a text is predicted from </s>, as in fairseq.

    Args:
        model: in evaluation.
        batch_tokens: that run together, about.
    """

    def __init__(self, model: FairseqLanguageModel, batch_tokens: int):
        self.model, self.decoder = model, model.decoder
        self.batch_tokens = batch_tokens
        dictionary = model.decoder.dictionary
        self.pad, self.start = dictionary.pad(), dictionary.eos()
        self.vocab_size = len(dictionary)
        self.longest = model.max_decoder_positions()

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def carries_state(self) -> bool:
        """Whether the model has a state of one size, however much it has read."""
        if not isinstance(self.decoder, TransNormerDecoder):
            return False
        stack = self.decoder.model.stack
        return stack.longest_input is None and all(
            getattr(each, "constant_state", True) for each in stack.modules()
        )

    def log_probs(
        self, texts: Sequence[Iterable[int]], context: Context
    ) -> Iterator[tuple[int, list[int], list[float]]]:
        """Score texts side by side.

        Args:
            texts: tokens of each, its ends of lines included; taken as needed.
            context: windows, or without one the whole text, if ``carries_state``, one
                text after the other.

        Returns:
            (number of the text, tokens, their log-probabilities in nats); a text's
            parts come in their order, among those of the others.
        """
        if context.window is None:
            for number, each in enumerate(texts):
                for tokens, found in self._with_state(each):
                    yield number, tokens, found
            return
        fresh, read = context.window - context.overlap, context.overlap + 1
        cut = [windows(each, fresh, read, [self.start]) for each in texts]
        for number, window, found in in_batches(
            cut, _length, self._of_windows, self.batch_tokens
        ):
            yield number, window.scored, found

    @torch.no_grad()
    def _of_windows(self, group: list[Window]) -> list[list[float]]:
        """A window is read up to the token before its last."""
        inputs = padded([[*each.read, *each.scored[:-1]] for each in group], self.pad)
        features, _ = self.decoder(inputs.to(self.device), features_only=True)
        rows = [
            features[i, len(each.read) - 1 :][: len(each.scored)]
            for i, each in enumerate(group)
        ]
        return self._of_rows(rows, [each.scored for each in group])

    @torch.no_grad()
    def _with_state(self, tokens: Iterable[int]) -> Iterator[tuple[list[int], list]]:
        """(tokens, log-probabilities) of a text of any length, in stretches."""
        tokens, before, states = iter(tokens), self.start, None
        while new := list(islice(tokens, self.batch_tokens)):
            inputs = torch.tensor([[before, *new[:-1]]], device=self.device)
            features, states = self.decoder.model.features(
                inputs, states, return_states=True
            )
            (found,) = self._of_rows([features[0]], [new])
            yield new, found
            before = new[-1]

    def _of_rows(
        self, features: list[Tensor], targets: list[list[int]]
    ) -> list[list[float]]:
        """(R_i, C) of each row and its targets -> their log-probabilities."""
        x = torch.cat(features)
        wanted = torch.tensor(sum(targets, []), device=x.device)
        size = max(1, LOGITS_AT_ONCE // self.vocab_size)
        found = []
        for some, tokens in zip(x.split(size), wanted.split(size), strict=True):
            logits = self.decoder.output_layer(some[None])
            scores = self.model.get_normalized_probs(
                (logits, None), log_probs=True, sample={"target": tokens[None]}
            )
            found += scores[0].gather(1, tokens[:, None]).squeeze(1).tolist()
        parts = iter(found)
        return [list(islice(parts, len(each))) for each in targets]


def _length(window: Window) -> int:
    return len(window.read) + len(window.scored)
