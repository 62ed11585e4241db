"""Classifiers for the Long-Range Arena: ``lra_`` and the name of a system.

Appendix E's sizes: two layers of width 64, two heads. What surrounds the attentions of
the other systems is the Skyformer paper's, which the paper takes over: LayerNorm, and a
feed-forward network of 128, with as many parameters as a GLU of 85.
"""

from dataclasses import dataclass

from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel

from ..modules.choices import Activation
from ..modules.config import (
    LRA,
    T1,
    ClassifierConfig,
    FeedForwardType,
    RelativePosition,
)
from ..modules.norms import NormType
from ..modules.sequence_classifier import SequenceClassifier
from .variants import TINY, as_dataclass, register_variant


@dataclass
class SequenceClassifierConfig(FairseqDataclass, ClassifierConfig):
    """The fields of ``ClassifierConfig``."""


class SequenceClassifierModel(BaseFairseqModel):
    """``SequenceClassifier`` for a task with ``vocabulary_size``, ``num_classes`` and
    ``num_sequences``."""

    def __init__(self, config: ClassifierConfig, task):
        super().__init__()
        self.model = SequenceClassifier(
            config, task.vocabulary_size, task.num_classes, task.num_sequences
        )
        limits = [self.model.stack.longest_input]
        if config.positional_embedding == "learned":
            limits.append(config.max_positions)
        self._max_positions = min(
            (limit for limit in limits if limit is not None), default=None
        )

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model of a configuration for a task."""
        return cls(as_dataclass(ClassifierConfig, cfg), task)

    def forward(self, tokens, lengths):
        """Logits (B, classes); see ``SequenceClassifier``."""
        return self.model(tokens, lengths)

    def max_positions(self):
        """Longest input, or None."""
        return self._max_positions


SKYFORMERS = LRA | {
    "norm_type": NormType("layer_norm"),
    "norm_eps": 1e-5,
    "ffn_type": FeedForwardType("ffn"),
    "ffn_dim": 128,
    "ffn_activation": Activation("gelu"),
    "relative_position": RelativePosition("none"),
}
# gated attention units, which have no feed-forward network; two have as many parameters
# as two layers of the others
FLASH = LRA | {
    "norm_type": NormType("layer_norm"),
    "norm_eps": 1e-5,
    "flash_norm": NormType("layer_norm"),
}
SYSTEMS = {
    "transnormer_t1": LRA | T1,
    "transnormer_t2": LRA,
    "flash_quad": FLASH | {"attention_types": "flash_quad*2"},
    "flash": FLASH | {"attention_types": "flash*2"},
}
# architecture, its attention, own values
for name, attention, own in (
    ("vanilla_transformer", "softmax", {}),
    ("linear_transformer", "linear", {}),
    ("kernelized", "kernelized", {}),
    ("nystromformer", "nystromformer", {}),
    ("linformer", "linformer", {}),
    ("informer", "informer", {}),
    ("performer", "performer", {"performer_features": 128}),
    ("reformer", "reformer", {}),
    ("bigbird", "bigbird", {}),
    ("skyformer", "skyformer", {}),
    ("transformer_ls", "long_short", {"long_short_window": 8}),
    ("cosformer", "cosformer", {"cosformer_length": 0}),
):
    SYSTEMS[name] = SKYFORMERS | own | {"attention_types": f"{attention}*2"}

for name, values in SYSTEMS.items():
    register_variant(
        f"lra_{name}", SequenceClassifierModel, SequenceClassifierConfig, **values
    )
for name in ("transnormer_t1", "transnormer_t2"):
    register_variant(
        f"lra_{name}_tiny",
        SequenceClassifierModel,
        SequenceClassifierConfig,
        **(SYSTEMS[name] | TINY),
    )
