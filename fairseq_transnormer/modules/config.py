"""The configurations of models, as dataclasses. The fairseq models inherit them.

The defaults are those of TransNormer T2. Field types are real types, not strings,
because fairseq reads them for its command line.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from ..ops import BACKENDS
from .attentions import AttentionOptions
from .diag_attention import DiagActivation
from .feed_forward import FeedForwardType
from .lrpe import RelativePosition
from .norms import NormType
from .options import (
    Activation,
    Choice,
    FeatureMap,
    check_fields,
    described,
    probability,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")


class NormPosition(Choice, values=("pre", "post")):
    """The place of a layer's norms."""


class PositionalEmbeddingType(Choice, values=("sinusoidal", "learned", "none")):
    """Absolute positions that are added to the token embedding."""


class Backend(Choice, values=BACKENDS):
    """Implementation of the ops."""


@dataclass
class LayerConfig(AttentionOptions):
    """A stack of layers; the values of the paper's causal T2."""

    attention_types: str = described(
        "diag*3,norm*3",
        "attention of each layer from the first to the last: registered names, NAME or "
        "NAME*COUNT, separated by commas",
    )
    embed_dim: int = described(512, "width d of the model", at_least=1)
    num_heads: int = described(8, "attention heads; a divisor of embed_dim", at_least=1)
    relative_position: RelativePosition = described(
        RelativePosition("lrpe"),
        "position encoding of the queries and keys of diag and norm attention",
    )
    lrpe_base: float = described(
        10000.0,
        "LRPE: theta starts as base^(-2 i / head width)",
        above=0,
        training_only=True,  # theta is a weight
    )
    ffn_type: FeedForwardType = described(
        FeedForwardType("glu"), "channel mixer of each layer"
    )
    ffn_dim: int = described(1365, "width inside the channel mixer", at_least=1)
    ffn_activation: Activation = described(
        Activation("silu"), "activation inside the channel mixer"
    )
    norm_type: NormType = described(
        NormType("simple_rms_norm"), "norm around the layers' two parts"
    )
    norm_position: NormPosition = described(
        NormPosition("pre"),
        "norm before each part and after the last layer, or after each sum",
    )
    no_final_norm: bool = described(
        False, "pre-norm layers: no norm after the last one"
    )
    norm_eps: float = described(
        1e-8, "eps of the norms around and after the layers, under the root", above=0
    )
    attention_norm_eps: float = described(
        1e-8, "eps of the norms inside diag and norm attention", above=0
    )
    dropout: float = probability(
        0.1, "dropout of the embedding and of each part's output"
    )
    attention_dropout: float = probability(
        0.0, "dropout of attention weights, where an attention has any"
    )
    activation_dropout: float = probability(
        0.0, "dropout after the channel mixer's activation"
    )
    checkpoint_activations: bool = described(
        False,
        "recompute each layer in the backward pass to save memory",
        training_only=True,
    )
    compile_layers: bool = described(
        False,
        "torch.compile each kind of layer in training: fewer kernels, after at least a "
        "minute of compilation",
        training_only=True,
    )
    cuda_graphs: bool = described(
        False,
        "train with the layers' steps as CUDA graphs, without Python's overhead; needs "
        "batches without pads, no autocast, one forward pass before each backward pass",
        training_only=True,
    )
    backend: Backend = described(
        Backend("auto"), "implementation of the ops", training_only=True
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass
class LanguageModelConfig(LayerConfig):
    """A causal language model; the values of the paper's T2."""

    positional_embedding: PositionalEmbeddingType = described(
        PositionalEmbeddingType("sinusoidal"), "absolute positions"
    )
    no_scale_embedding: bool = described(
        False, "do not multiply the token embedding by sqrt(embed_dim)"
    )
    untie_output_embedding: bool = described(
        False, "do not share the output layer's matrix with the embedding"
    )
    output_bias: bool = described(False, "add a bias to the output layer")


@dataclass
class EncoderConfig(LayerConfig):
    """A bidirectional encoder with a masked-LM head."""

    positional_embedding: PositionalEmbeddingType = described(
        PositionalEmbeddingType("learned"), "absolute positions"
    )
    max_positions: int = described(
        512,
        "longest input; rows of the learned positions, less two for padding",
        at_least=1,
    )
    untie_output_embedding: bool = described(
        False, "do not share the masked-LM head's matrix with the embedding"
    )


@dataclass
class ClassifierConfig(LayerConfig):
    """A classifier of sequences; with ``LRA``, the paper's Appendix E."""

    positional_embedding: PositionalEmbeddingType = described(
        PositionalEmbeddingType("learned"), "absolute positions"
    )
    max_positions: int = described(
        4096, "longest input; rows of the learned positions", at_least=1
    )
    classifier_dim: int = described(
        128, "width inside the classification head", at_least=1
    )


def with_defaults(**defaults: Any) -> Callable[[type[Config]], type[Config]]:
    """Class decorator: a dataclass with other defaults for fields of its base.

    Raises:
        KeyError: the base has no such field.
    """

    def changed(kind: type[Config]) -> type[Config]:
        known = {each.name: each for each in fields(kind)}
        kind.__annotations__ = {key: known[key].type for key in defaults}
        for key, value in defaults.items():
            setattr(kind, key, field(default=value, metadata=known[key].metadata))
        return dataclass(kind)

    return changed


# The values of T1 that differ from T2's in the dataclasses above (section 4.3).
T1 = {
    "diag_activation": DiagActivation("relu"),
    "diag_norm": NormType("simple_rms_norm"),
    "norm_attention_activation": FeatureMap("elu"),
}
# The values of the bidirectional model that differ from the causal one's (Table 13).
BLM = {
    "attention_types": "diag*6,norm*6",
    "embed_dim": 768,
    "num_heads": 12,
    "ffn_dim": 2048,
    "norm_position": NormPosition("post"),
    "attention_dropout": 0.1,
}
# The Long-Range Arena's (Appendix E, and the Skyformer paper's set-up that it follows).
LRA = {
    "attention_types": "diag,norm",
    "embed_dim": 64,
    "num_heads": 2,
    "ffn_dim": 85,
    "attention_dropout": 0.1,
}


@with_defaults(**T1)
class LanguageModelT1Config(LanguageModelConfig):
    """A causal language model; the values of the paper's T1."""


@dataclass
class LanguageModelT2Config(LanguageModelConfig):
    """A causal language model; the values of the paper's T2."""


@with_defaults(**BLM, **T1)
class EncoderT1Config(EncoderConfig):
    """A bidirectional encoder; the values of the paper's T1."""


@with_defaults(**BLM)
class EncoderT2Config(EncoderConfig):
    """A bidirectional encoder; the values of the paper's T2."""


@with_defaults(**LRA, **T1)
class ClassifierT1Config(ClassifierConfig):
    """A classifier of sequences; the values of the paper's T1."""


@with_defaults(**LRA)
class ClassifierT2Config(ClassifierConfig):
    """A classifier of sequences; the values of the paper's T2."""
