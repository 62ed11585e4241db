"""The vanilla transformer by fairseq's own modules, behind our field names.

``vanilla_transformer``: fairseq's decoder, pre-norm with a final norm;
``roberta_vanilla_transformer``: fairseq's RoBERTa encoder.
"""

from argparse import Namespace
from dataclasses import dataclass

from fairseq.models import FairseqLanguageModel
from fairseq.models.roberta.model import RobertaEncoder
from fairseq.models.transformer import (
    Embedding,
    TransformerConfig,
    TransformerDecoderBase,
)

from ..modules.config import NormPosition
from ..modules.options import Choice, check_fields, described, probability
from .language_model import NO_LONGEST_LENGTH, FairseqLanguageModelConfig
from .masked_language_model import ClassificationHeadConfig, TransNormerEncoderModel
from .vanilla_decoding import FairseqDecoding
from .variants import as_dataclass

# fairseq makes its table of sinusoids as long at first; it grows with the input
FIRST_POSITIONS = 1024


# what fairseq's modules can run: its "swish" is a class that it calls with the input
class VanillaActivation(Choice, values=("relu", "gelu")):
    """What the vanilla transformer puts its inner features through."""


@dataclass
class VanillaOptions:
    """What the causal and the bidirectional model have in common."""

    num_layers: int = described(6, "layers", at_least=1)
    embed_dim: int = described(512, "width d of the model", at_least=1)
    num_heads: int = described(8, "attention heads; a divisor of embed_dim", at_least=1)
    ffn_dim: int = described(2048, "width inside the feed-forward network", at_least=1)
    ffn_activation: VanillaActivation = described(
        VanillaActivation("relu"), "activation inside the feed-forward network"
    )
    norm_position: NormPosition = described(
        NormPosition("pre"),
        "norm before each part and after the last layer, or after each sum",
    )
    dropout: float = probability(
        0.1, "dropout of the embedding and of each part's output"
    )
    attention_dropout: float = probability(0.0, "dropout of attention weights")
    activation_dropout: float = probability(
        0.0, "dropout after the feed-forward network's activation"
    )
    untie_output_embedding: bool = described(
        False, "give the output layer a matrix of its own"
    )
    checkpoint_activations: bool = described(
        False,
        "recompute each layer in the backward pass to save memory",
        training_only=True,
    )

    def __post_init__(self):
        check_fields(self)
        if self.embed_dim % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads}; allowed: divisors of "
                f"embed_dim={self.embed_dim}"
            )


@dataclass
class VanillaLanguageModelOptions(VanillaOptions):
    """The causal model."""

    no_scale_embedding: bool = described(
        False, "do not multiply the token embedding by sqrt(embed_dim)"
    )


@dataclass
class VanillaEncoderOptions(VanillaOptions):
    """The bidirectional model."""

    max_positions: int = described(
        512,
        "longest input; rows of the learned positions, less two for padding",
        at_least=1,
    )


@dataclass
class VanillaTransformerConfig(FairseqLanguageModelConfig, VanillaLanguageModelOptions):
    """The fields of the causal model and what fairseq needs besides."""


@dataclass
class VanillaEncoderConfig(ClassificationHeadConfig, VanillaEncoderOptions):
    """The fields of the bidirectional model and those of the classification heads."""


class VanillaDecoder(TransformerDecoderBase):
    """fairseq's decoder without an encoder."""

    def __init__(self, options: VanillaLanguageModelOptions, dictionary, limit: int):
        embedding = Embedding(len(dictionary), options.embed_dim, dictionary.pad())
        config = _decoder_config(options)
        super().__init__(config, dictionary, embedding, no_encoder_attn=True)
        self.max_target_positions = limit

    @property
    def model(self) -> FairseqDecoding:
        """What the package ``generation`` runs."""
        return FairseqDecoding(self)


class VanillaLanguageModel(FairseqLanguageModel):
    """The paper's vanilla ALM."""

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model of a configuration for a language modelling task."""
        limit = getattr(cfg, "max_target_positions", None)
        return cls(
            VanillaDecoder(
                as_dataclass(VanillaLanguageModelOptions, cfg),
                task.target_dictionary,
                NO_LONGEST_LENGTH if limit is None else limit,
            )
        )


class VanillaEncoderModel(TransNormerEncoderModel):
    """The paper's vanilla BLM."""

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model of a configuration for a task with one dictionary."""
        options = as_dataclass(VanillaEncoderOptions, cfg)
        return cls(
            cfg, RobertaEncoder(_encoder_config(options), task.source_dictionary)
        )


def _decoder_config(options: VanillaLanguageModelOptions) -> TransformerConfig:
    config = TransformerConfig()
    decoder = config.decoder
    decoder.layers, decoder.attention_heads = options.num_layers, options.num_heads
    decoder.embed_dim = decoder.input_dim = decoder.output_dim = options.embed_dim
    decoder.ffn_embed_dim = options.ffn_dim
    decoder.normalize_before = options.norm_position == "pre"
    for name, value in _common(options).items():
        setattr(config, name, value)
    config.no_scale_embedding = options.no_scale_embedding
    config.share_decoder_input_output_embed = not options.untie_output_embedding
    config.max_target_positions = FIRST_POSITIONS
    return config


def _encoder_config(options: VanillaEncoderOptions) -> Namespace:
    """fairseq's RoBERTa fills in what is not set."""
    return Namespace(
        encoder_layers=options.num_layers,
        encoder_attention_heads=options.num_heads,
        encoder_embed_dim=options.embed_dim,
        encoder_ffn_embed_dim=options.ffn_dim,
        encoder_normalize_before=options.norm_position == "pre",
        untie_weights_roberta=options.untie_output_embedding,
        max_positions=options.max_positions,
        **_common(options),
    )


def _common(options: VanillaOptions) -> dict:
    return {
        "activation_fn": options.ffn_activation.value,
        "dropout": options.dropout,
        "attention_dropout": options.attention_dropout,
        "activation_dropout": options.activation_dropout,
        "checkpoint_activations": options.checkpoint_activations,
    }


ROBERTA = {
    "num_layers": 12,
    "embed_dim": 768,
    "num_heads": 12,
    "ffn_dim": 3072,
    "ffn_activation": VanillaActivation("gelu"),
    "norm_position": NormPosition("post"),
    "attention_dropout": 0.1,
}
TINY = {"num_layers": 2, "embed_dim": 32, "num_heads": 2, "ffn_dim": 85}

# kind of model -> model, configuration, values, those of two small layers
VANILLA = {
    "alm": (VanillaLanguageModel, VanillaTransformerConfig, {}, TINY),
    "blm": (VanillaEncoderModel, VanillaEncoderConfig, ROBERTA, ROBERTA | TINY),
}
