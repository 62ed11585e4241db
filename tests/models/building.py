"""fairseq's pieces that the models need, without data and without a command line."""

from types import SimpleNamespace

import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from tests.binary_data import numbered_words

CAUSAL = ("transnormer_t1", "transnormer_t2", "transnormer_t1_tiny")
CAUSAL += ("transnormer_t2_tiny",)
ENCODERS = tuple("roberta_" + name for name in CAUSAL)
VARIANTS = CAUSAL + ENCODERS
BASELINES = ("vanilla_transformer", "linear_transformer", "linear_transformer_unscaled")
BASELINES += ("norm_attention_transformer", "performer", "cosformer")


def dictionary(words=26):
    return numbered_words(words)


def task():
    words = dictionary()
    return SimpleNamespace(
        source_dictionary=words, target_dictionary=words, dictionary=words
    )


def build(name, **changes):
    """The model ``name`` as fairseq builds it, in evaluation."""
    cfg = MODEL_DATACLASS_REGISTRY[name](**changes)
    return MODEL_REGISTRY[name].build_model(cfg, task()).eval()


def tiny_causal(variant, **changes):
    """A tiny causal model that ranks next tokens clearly and ends some sentences."""
    model = build(f"transnormer_{variant}_tiny", **changes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("weight") and parameter.dim() == 2:
                parameter *= 2
        model.decoder.model.embed_tokens.weight[dictionary().eos()] *= 2
    return model


def tiny_encoder(variant, **changes):
    """variant: t1, t2 or the name of a baseline."""
    name = variant if variant in BASELINES else f"transnormer_{variant}"
    return build(f"roberta_{name}_tiny", **changes)


def draw_tokens(*shape):
    return torch.randint(4, len(dictionary()), shape)
