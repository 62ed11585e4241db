"""A language model that remembers tokens only: each step computes all of them anew."""

from __future__ import annotations

from typing import NamedTuple

import torch
from fairseq.models import FairseqIncrementalDecoder, FairseqLanguageModel
from torch import Tensor


class TokensSoFar(NamedTuple):
    """tokens: int64 (B, N); length: (B,), N."""

    tokens: Tensor
    length: Tensor


class RecomputingModel:
    """The interface of ``CausalLanguageModel`` as ``generation`` runs it.

    Args:
        model: has it, too; it is run on all tokens without states.
    """

    def __init__(self, model):
        self.embed_tokens, self.output = model.embed_tokens, model.output
        self._features = model.features

    def features(
        self,
        tokens: Tensor,
        states: tuple[TokensSoFar] | None = None,
        return_states: bool = False,
    ) -> Tensor | tuple[Tensor, tuple[TokensSoFar]]:
        """Features of ``tokens`` (B, N), which stand after those of the states."""
        before = tokens[:, :0] if states is None else states[0].tokens
        every = torch.cat((before, tokens), dim=1)
        x = self._features(every)[:, before.shape[1] :]
        length = every.new_full((len(every),), every.shape[1])
        return (x, (TokensSoFar(every, length),)) if return_states else x


class RecomputingDecoder(FairseqIncrementalDecoder):
    """``decoder`` of this package with a ``RecomputingModel``."""

    def __init__(self, decoder):
        super().__init__(decoder.dictionary)
        self.decoder = decoder

    @property
    def model(self) -> RecomputingModel:
        """What the package ``generation`` runs."""
        return RecomputingModel(self.decoder.model)

    def max_positions(self):
        return self.decoder.max_positions()


def recomputing(model: FairseqLanguageModel) -> FairseqLanguageModel:
    """The same weights without states."""
    return FairseqLanguageModel(RecomputingDecoder(model.decoder))
