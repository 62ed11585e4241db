"""A language model for fairseq's generator that reads the prompt in one pass.

fairseq's generator feeds a prompt token by token. To it, this model looks like one with
an encoder: the encoder reads the prompt, and what it returns, the state after the
prompt, is reordered with the beams and carried from step to step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models import FairseqLanguageModel
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor

from ..modules import CausalLanguageModel
from ..ops import reorder_state
from ..ops.states import State

# Logits that are in memory at once while the tokens of a prompt are scored: 128 MiB.
LOGITS_AT_ONCE = 1 << 25


@dataclass
class Reading:
    """Where the generator stands.

    prompt: forced tokens, int64 (B, L); features: outputs at which they, and the first
    free token, are predicted, (B, L + 1, C); prompt_log_probs: (B, L).
    states: of B rows while ``rows`` maps the generator's rows to them, that is to the
    end of the prompt, up to where all beams of a prompt are equal; later of all rows.
    """

    prompt: Tensor
    features: Tensor
    states: tuple[State, ...]
    rows: Tensor | None
    prompt_log_probs: Tensor | None = None


class PrefilledModel(EnsembleModel):
    """One model, behind the interface through which fairseq's generator runs models.

    ``net_input`` of the sample has, besides ``src_tokens`` (B, 1 + L), the generator's
    first token and the prompt: ``unread``, int64 (B, N), the tokens to read, which end
    in them; and ``states``, after which those stand, or None.

    Args:
        model: a language model of this package: its ``decoder.model`` has ``features``
            and ``output`` of ``CausalLanguageModel``.
        smallest_log_prob: tokens count at least this much, or None. A sampler
            cannot draw a token whose probability rounds to 0.
        on_token: called with each token that has been chosen, (rows,), before the model
            reads it.
    """

    def __init__(
        self,
        model: FairseqLanguageModel,
        smallest_log_prob: float | None = None,
        on_token: Callable[[Tensor], None] | None = None,
    ):
        super().__init__([model])
        self.smallest_log_prob, self.on_token = smallest_log_prob, on_token
        self.read_states: tuple[State, ...] = ()
        self.beam_size = 1

    def set_decoder_beam_size(self, beam_size: int) -> None:
        """The generator says how many rows a prompt has."""
        self.beam_size = beam_size

    @property
    def language_model(self) -> CausalLanguageModel:
        """The plain PyTorch model inside."""
        return self.single_model.decoder.model

    def forward_encoder(self, net_input: dict[str, Any]) -> Reading:
        """Read all prompts; ``read_states`` are the states after them."""
        features, self.read_states = self.language_model.features(
            net_input["unread"], net_input["states"], return_states=True
        )
        source = net_input["src_tokens"]
        return Reading(
            prompt=source[:, 1:],
            features=features[:, -source.shape[1] :],
            states=self.read_states,
            rows=torch.arange(len(source), device=source.device),
        )

    def forward_decoder(
        self,
        tokens: Tensor,
        encoder_outs: Reading,
        incremental_states: list[dict[str, Any]],
        temperature: float = 1.0,
    ) -> tuple[Tensor, None]:
        """Log-probabilities (rows, V) of the token after ``tokens`` (rows, step + 1).

        Inside the prompt only its next token has one, that of the pass over the prompt.
        """
        reading, step = encoder_outs, tokens.shape[1] - 1
        prompt_length = reading.prompt.shape[1]
        if step < prompt_length:
            if reading.prompt_log_probs is None:
                reading.prompt_log_probs = self._score_prompt(reading, temperature)
            known = reading.prompt[reading.rows, step, None]
            score = reading.prompt_log_probs[reading.rows, step, None]
            vocab_size = self.language_model.embed_tokens.num_embeddings
            nothing = score.new_full((len(known), vocab_size), -torch.inf)
            return nothing.scatter_(1, known, score), None
        if step == prompt_length:
            log_probs = self._log_probs(reading.features[:, -1], temperature)
            return log_probs[reading.rows], None
        if self.on_token is not None:
            self.on_token(tokens[:, -1])
        if reading.rows is not None:
            reading.states = _reorder(reading.states, reading.rows)
            reading.rows = None
        features, reading.states = self.language_model.features(
            tokens[:, -1:], reading.states, return_states=True
        )
        return self._log_probs(features[:, -1], temperature), None

    def reorder_encoder_out(self, encoder_outs: Reading, new_order: Tensor) -> Reading:
        """Row i continues row ``new_order[i]``."""
        if encoder_outs.rows is not None:
            encoder_outs.rows = encoder_outs.rows[new_order]
        # one row a prompt, and none of them finished: nothing moves
        elif self.beam_size > 1 or len(new_order) < len(encoder_outs.states[0].length):
            encoder_outs.states = _reorder(encoder_outs.states, new_order)
        return encoder_outs

    def reorder_incremental_state(
        self, incremental_states: list[dict[str, Any]], new_order: Tensor
    ) -> None:
        """Nothing: the state is in what ``forward_encoder`` returned."""

    def _score_prompt(self, reading: Reading, temperature: float) -> Tensor:
        """(B, L): the log-probability of each forced token."""
        vocab_size = self.language_model.embed_tokens.num_embeddings
        features = reading.features[:, :-1].flatten(0, 1)
        known = reading.prompt.flatten()[:, None]
        size = max(1, LOGITS_AT_ONCE // vocab_size)
        scores = torch.cat(
            [
                self._log_probs(some, temperature).gather(1, tokens)
                for some, tokens in zip(
                    features.split(size), known.split(size), strict=True
                )
            ]
        )
        return scores.view_as(reading.prompt)

    def _log_probs(self, features: Tensor, temperature: float) -> Tensor:
        """(rows, C) -> (rows, V), in the order of EnsembleModel.forward_decoder."""
        logits = self.language_model.output(features).div_(temperature)
        scores = self.single_model.get_normalized_probs((logits, None), log_probs=True)
        # also those that the generator leaves as the only choice: the end of a line
        # that is too long, all but the end of one that is too short
        if self.smallest_log_prob is not None:
            scores = scores.clamp(min=self.smallest_log_prob)
        return scores


def _reorder(states: tuple[State, ...], order: Tensor) -> tuple[State, ...]:
    return tuple(reorder_state(state, order) for state in states)
