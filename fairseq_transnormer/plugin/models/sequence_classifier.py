"""Classifiers for the Long-Range Arena: ``lra_`` and the name of a system.

The sizes are those of Appendix E: two layers of width 64, two heads. The other systems'
attentions have the Skyformer paper's LayerNorm and feed-forward network of 128.
"""

from dataclasses import dataclass

from fairseq.models import BaseFairseqModel

from ...modules.config import ClassifierConfig
from ...modules.sequence_classifier import SequenceClassifier
from .variants import VariantConfig, as_dataclass


@dataclass
class SequenceClassifierConfig(VariantConfig, ClassifierConfig):
    """The fields of ``ClassifierConfig``."""


class SequenceClassifierModel(BaseFairseqModel):
    """``SequenceClassifier`` for the task ``long_range_arena``."""

    def __init__(self, config: ClassifierConfig, task):
        super().__init__()
        self.model = SequenceClassifier(
            config, task.vocabulary_size, task.num_classes, task.num_sequences
        )
        learned = config.positional_embedding == "learned"
        limits = (self.model.stack.longest_input, learned and config.max_positions)
        self._max_positions = min(filter(None, limits), default=None)

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model of a configuration for a task."""
        return cls(as_dataclass(ClassifierConfig, cfg), task)

    def forward(self, tokens, lengths, padding=None):
        """Logits (B, classes); see ``SequenceClassifier``."""
        return self.model(tokens, lengths, padding)

    def max_positions(self):
        """Longest input, or None."""
        return self._max_positions
