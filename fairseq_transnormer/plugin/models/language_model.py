"""fairseq's causal models; ``architectures.py`` has their names."""

from dataclasses import dataclass
from typing import Optional

from fairseq.models import FairseqIncrementalDecoder, FairseqLanguageModel

from ...modules.config import LanguageModelConfig
from ...modules.language_model import CausalLanguageModel
from ...modules.options import described
from ...ops import reorder_state
from .variants import VariantConfig, as_dataclass

# fairseq asks for a maximum length; this is that of its own sinusoidal positions
NO_LONGEST_LENGTH = int(1e5)


@dataclass
class TransNormerConfig(VariantConfig, LanguageModelConfig):
    """The fields of ``LanguageModelConfig`` and what fairseq needs besides."""

    max_target_positions: Optional[int] = described(  # noqa: UP045 (read by fairseq)
        None,
        "longest sequence that fairseq lets through; no limit by default",
        at_least=1,
        training_only=True,
    )


class TransNormerDecoder(FairseqIncrementalDecoder):
    """``CausalLanguageModel`` behind fairseq's incremental decoder interface.

    max_positions: the result of ``max_positions()``, if the layers take as much.
    """

    def __init__(self, config: LanguageModelConfig, dictionary, max_positions: int):
        super().__init__(dictionary)
        self.model = CausalLanguageModel(config, len(dictionary), dictionary.pad())
        longest = self.model.stack.longest_input
        self._max_positions = min(max_positions, longest or max_positions)

    def forward(
        self, prev_output_tokens, encoder_out=None, features_only=False, **options
    ):
        """``extract_features``, then logits (B, N, vocabulary) of the next token.

        encoder_out is unused; fairseq's generator passes it.
        """
        x, extra = self.extract_features(prev_output_tokens, **options)
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens,
        encoder_out=None,
        incremental_state=None,
        return_all_hiddens=False,
        padding=None,
        **unused,
    ):
        """The features of tokens.

        Args:
            prev_output_tokens: int64 (B, N), the whole prefix, also in incremental
                decoding, which reads all unseen tokens in one pass.
            incremental_state: dict that keeps the state between calls, or None.
            return_all_hiddens: put the embedding and each layer's output, each (N, B,
                embed_dim), into the second result as "inner_states".
            padding: the places of pads, if known (``modules.padding``).

        Returns:
            (B, N, embed_dim) and a dict. In incremental decoding N counts only the
            unseen tokens.
        """
        hidden_states = [] if return_all_hiddens else None
        if incremental_state is None:
            x, _ = self.model.features(
                prev_output_tokens, hidden_states=hidden_states, padding=padding
            )
        else:
            cached = self.get_incremental_state(incremental_state, "cached")
            seen, states = (0, None) if cached is None else cached
            x, states = self.model.features(
                prev_output_tokens[:, seen:],
                states,
                return_states=True,
                hidden_states=hidden_states,
            )
            cached = (prev_output_tokens.shape[1], states)
            self.set_incremental_state(incremental_state, "cached", cached)
        inner_states = [h.transpose(0, 1) for h in hidden_states or ()]
        return x, {"attn": [None], "inner_states": inner_states}

    def output_layer(self, features, **unused):
        """(..., embed_dim) -> logits (..., vocabulary)."""
        return self.model.output(features)

    def reorder_incremental_state(self, incremental_state, new_order):
        """Follow beam search: row i continues row ``new_order[i]``."""
        cached = self.get_incremental_state(incremental_state, "cached")
        if cached is not None:
            seen, states = cached
            states = tuple(reorder_state(state, new_order) for state in states)
            self.set_incremental_state(incremental_state, "cached", (seen, states))

    def make_generation_fast_(self, retain_dropout=False, **unused):
        """Called by fairseq's commands before a model generates or scores."""
        if retain_dropout:
            raise ValueError(
                "generation.retain_dropout=true; allowed: false, as this model drops "
                "nothing outside training"
            )

    def max_positions(self):
        """Longest input that fairseq lets through."""
        return self._max_positions


class TransNormerLanguageModel(FairseqLanguageModel):
    """The paper's ALM: ``CausalLanguageModel`` as a fairseq language model."""

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model of a configuration for a language modelling task."""
        words, predicted = len(task.source_dictionary), len(task.target_dictionary)
        if predicted != words:
            raise ValueError(
                f"task.output_dictionary_size: {predicted} of {words} words are "
                "predicted, and the model has one embedding for both; allowed: -1"
            )
        config = as_dataclass(LanguageModelConfig, cfg)
        limit = getattr(cfg, "max_target_positions", None) or NO_LONGEST_LENGTH
        return cls(TransNormerDecoder(config, task.target_dictionary, limit))

    def forward(self, src_tokens, targets=None, **keywords):
        """The decoder's results, or the loss of ``targets``, int64 (B, N); a dict."""
        if targets is None:
            return self.decoder(src_tokens, **keywords)
        x, extra = self.decoder(src_tokens, features_only=True, **keywords)
        return self.decoder.model.output_loss(x, targets), extra
