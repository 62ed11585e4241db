"""fairseq's own transformer modules with the sizes and options of our vanilla."""

from argparse import Namespace

from fairseq.models import FairseqEncoderModel, FairseqLanguageModel
from fairseq.models.roberta.model import RobertaEncoder
from fairseq.models.transformer import (
    Embedding,
    TransformerConfig,
    TransformerDecoderBase,
)

from .building import dictionary


def fairseq_model(cfg, words=None):
    """What ``vanilla_transformer`` or ``roberta_vanilla_transformer`` was made of.

    cfg: of our model; one with ``max_positions`` is RoBERTa's.
    """
    words = words or dictionary()
    if hasattr(cfg, "max_positions"):
        return FairseqEncoderModel(RobertaEncoder(_encoder_config(cfg), words)).eval()
    embedding = Embedding(len(words), cfg.embed_dim, words.pad())
    decoder = TransformerDecoderBase(
        _decoder_config(cfg), words, embedding, no_encoder_attn=True
    )
    return FairseqLanguageModel(decoder).eval()


def layers_of(cfg) -> int:
    """Of "softmax*N"."""
    return int(cfg.attention_types.partition("*")[2] or 1)


def _decoder_config(cfg) -> TransformerConfig:
    config = TransformerConfig()
    decoder = config.decoder
    decoder.layers, decoder.attention_heads = layers_of(cfg), cfg.num_heads
    decoder.embed_dim = decoder.input_dim = decoder.output_dim = cfg.embed_dim
    decoder.ffn_embed_dim = cfg.ffn_dim
    decoder.normalize_before = cfg.norm_position == "pre"
    for name, value in _common(cfg).items():
        setattr(config, name, value)
    config.no_scale_embedding = cfg.no_scale_embedding
    config.share_decoder_input_output_embed = not cfg.untie_output_embedding
    config.max_target_positions = 1024
    return config


def _encoder_config(cfg) -> Namespace:
    return Namespace(
        encoder_layers=layers_of(cfg),
        encoder_attention_heads=cfg.num_heads,
        encoder_embed_dim=cfg.embed_dim,
        encoder_ffn_embed_dim=cfg.ffn_dim,
        encoder_normalize_before=cfg.norm_position == "pre",
        untie_weights_roberta=cfg.untie_output_embedding,
        max_positions=cfg.max_positions,
        **_common(cfg),
    )


def _common(cfg) -> dict:
    return {
        "activation_fn": str(cfg.ffn_activation),
        "dropout": cfg.dropout,
        "attention_dropout": cfg.attention_dropout,
        "activation_dropout": cfg.activation_dropout,
    }
