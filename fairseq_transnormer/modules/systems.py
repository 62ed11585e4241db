"""Every system of the paper's tables, in one list.

The list is read by the fairseq models (one architecture per system), the table runner
(rows), benchmarks and docs/systems.md. To add a system, write a file in ``baselines/``
with the attention, and a line in ``SYSTEMS``.

A system has three kinds of models: ``alm``, a causal language model, ``blm``, a
RoBERTa-style encoder, and ``lra``, a classifier of long sequences (Appendix E).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .baselines.linear_attention import LinearNormalizer
from .config import (
    BLM,
    LRA,
    T1,
    ClassifierConfig,
    EncoderConfig,
    LanguageModelConfig,
    NormPosition,
)
from .feed_forward import FeedForwardType
from .lrpe import RelativePosition
from .norms import NormType
from .options import Activation

Values = Mapping[str, Any]
# kind -> prefix of the names of fairseq architectures
PREFIXES = {"alm": "", "blm": "roberta_", "lra": "lra_"}
KINDS = tuple(PREFIXES)
CONFIGS = {"alm": LanguageModelConfig, "blm": EncoderConfig, "lra": ClassifierConfig}

LAYER_NORM = {"norm_type": NormType("layer_norm"), "norm_eps": 1e-5}
# The vanilla transformer with another attention. The classifiers are the Skyformer
# paper's, as in Appendix E: a feed-forward network of 128 has as many parameters as a
# GLU of 85.
_FFN = LAYER_NORM | {
    "ffn_type": FeedForwardType("ffn"),
    "relative_position": RelativePosition("none"),
}
_GELU = _FFN | {"ffn_activation": Activation("gelu")}
VANILLA = {
    "alm": _FFN | {"ffn_dim": 2048, "ffn_activation": Activation("relu")},
    "blm": BLM | _GELU | {"ffn_dim": 3072},
    "lra": LRA | _GELU | {"ffn_dim": 128},
}
TRANSNORMER = {"alm": {}, "blm": BLM, "lra": LRA}
# Gated attention units, which have no feed-forward network: two have as many parameters
# as a layer of the others in language models.
_FLASH_NORM = LAYER_NORM | {"flash_norm": NormType("layer_norm")}
FLASH = {
    "alm": LAYER_NORM,
    "blm": _FLASH_NORM
    | {
        "embed_dim": 768,
        "num_heads": 12,
        "attention_dropout": 0.1,
        "no_final_norm": True,
    },
    "lra": LRA | _FLASH_NORM,
}
# for tests: two layers, small
TINY = {"embed_dim": 32, "num_heads": 2, "ffn_dim": 85, "block_size": 8}


@dataclass(frozen=True)
class System:
    """A system of the paper.

    Attributes:
        name: short, as in ``model=KIND_NAME`` of configurations.
        label: as the paper prints it.
        attention: registered name for all layers, or "a,b": of the first and of the
            second half of them.
        architecture: fairseq's ``--arch`` without the kind's prefix; empty: ``name``.
        kinds: kinds of its models in the paper.
        around: kind -> values of the layers around the attention.
        values: values for models of all kinds.
        own: kind -> further values.
        tiny: values of its models for tests, after ``TINY``.
        tiny_kinds: kinds of its models for tests.
        layers: kind -> number of layers.
    """

    name: str
    label: str
    attention: str
    architecture: str = ""
    kinds: tuple[str, ...] = KINDS
    around: Mapping[str, Values] = field(default_factory=lambda: VANILLA)
    values: Values = field(default_factory=dict)
    own: Mapping[str, Values] = field(default_factory=dict)
    tiny: Values = field(default_factory=dict)
    tiny_kinds: tuple[str, ...] = ("alm", "blm")
    layers: Mapping[str, int] = field(
        default_factory=lambda: {"alm": 6, "blm": 12, "lra": 2}
    )

    def architecture_of(self, kind: str) -> str:
        """fairseq's ``--arch`` of a kind."""
        return PREFIXES[kind] + (self.architecture or self.name)

    def model_values(self, kind: str) -> dict[str, Any]:
        """The values of its model that differ from the kind's configuration.

        ``CONFIGS[kind](**system.model_values(kind))`` is its configuration in plain
        PyTorch.
        """
        attentions = {"attention_types": self.attention_types(self.layers[kind])}
        return {
            **self.around[kind],
            **self.values,
            **self.own.get(kind, {}),
            **attentions,
        }

    def tiny_values(self, kind: str) -> dict[str, Any]:
        """``model_values`` of two small layers."""
        attentions = {"attention_types": self.attention_types(2)}
        return self.model_values(kind) | TINY | attentions | dict(self.tiny)

    def attention_types(self, layers: int) -> str:
        """In the notation of configurations, e.g. "diag*3,norm*3"."""
        names = self.attention.split(",")
        count = layers // len(names)
        return ",".join(f"{name}*{count}" if count > 1 else name for name in names)


_CLASSIFIER = ("lra",)
_LANGUAGE_MODELS = ("alm", "blm")

SYSTEMS = {
    system.name: system
    for system in (
        System("t1", "TransNormer T1", "diag,norm", "transnormer_t1",
               around=TRANSNORMER, values=T1, tiny_kinds=KINDS),
        System("t2", "TransNormer T2", "diag,norm", "transnormer_t2",
               around=TRANSNORMER, tiny_kinds=KINDS),
        System("vanilla", "Vanilla", "softmax", "vanilla_transformer"),
        System("linear", "1+elu", "linear", "linear_transformer"),
        System("linear_unscaled", "1+elu w/o scaling", "linear",
               "linear_transformer_unscaled", _LANGUAGE_MODELS,
               values={"linear_normalizer": LinearNormalizer("none")}),
        System("norm_attention", "NormAttention", "norm",
               "norm_attention_transformer", _LANGUAGE_MODELS),
        System("performer", "Performer", "performer",
               own={"lra": {"performer_features": 128}}),
        System("cosformer", "cosFormer", "cosformer",
               own={"blm": {"cosformer_length": 0}, "lra": {"cosformer_length": 0}}),
        System("ls", "LS", "long_short", "transformer_ls",
               own={"alm": {"norm_position": NormPosition("post"),
                            "positional_embedding": "none", "output_bias": True},
                    "blm": {"long_short_window": 8}, "lra": {"long_short_window": 8}},
               tiny={"long_short_window": 8, "long_short_chunk_size": 4}),
        System("flash_quad", "FLASH-quad", "flash_quad", around=FLASH,
               layers={"alm": 10, "blm": 24, "lra": 2},
               tiny={"flash_key_dim": 16, "flash_chunk_size": 8}),
        System("flash", "FLASH", "flash", around=FLASH,
               layers={"alm": 10, "blm": 24, "lra": 2},
               tiny={"flash_key_dim": 16, "flash_chunk_size": 8}),
        System("kernelized", "Kernelized Attention", "kernelized", kinds=_CLASSIFIER),
        System("nystromformer", "Nystromformer", "nystromformer", kinds=_CLASSIFIER),
        System("linformer", "Linformer", "linformer", kinds=_CLASSIFIER),
        System("informer", "Informer", "informer", kinds=_CLASSIFIER),
        System("reformer", "Reformer", "reformer", kinds=_CLASSIFIER),
        System("bigbird", "BigBird", "bigbird", kinds=_CLASSIFIER),
        System("skyformer", "Skyformer", "skyformer", kinds=_CLASSIFIER),
    )
}  # fmt: skip
