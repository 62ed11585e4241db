"""The baselines as fairseq architectures: counts, values, and how they start."""

from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

from fairseq_transnormer.checkpoints.fairseq_vanilla import renamed

from .building import BASELINES, build, task
from .fairseq_transformers import fairseq_model
from .test_variants import defaults

names = pytest.mark.parametrize(
    "name", [*BASELINES, *(f"roberta_{name}" for name in BASELINES)]
)
PAD = task().dictionary.pad()
# values of the vanilla transformer around its attention (section 5, Table 13)
AROUND = {
    "embed_dim": 512,
    "num_heads": 8,
    "ffn_dim": 2048,
    "ffn_activation": "relu",
    "norm_position": "pre",
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
}
ROBERTA_AROUND = AROUND | {
    "embed_dim": 768,
    "num_heads": 12,
    "ffn_dim": 3072,
    "ffn_activation": "gelu",
    "norm_position": "post",
    "attention_dropout": 0.1,
    "max_positions": 512,
}
OURS = {
    "ffn_type": "ffn",
    "norm_type": "layer_norm",
    "norm_eps": 1e-5,
    "relative_position": "none",
}
OWN = {
    "vanilla_transformer": {"attention_types": "softmax*6"},
    "linear_transformer": {"attention_types": "linear*6", "linear_normalizer": "sum"},
    "linear_transformer_unscaled": {
        "attention_types": "linear*6",
        "linear_normalizer": "none",
    },
    "norm_attention_transformer": {
        "attention_types": "norm*6",
        "norm_attention_activation": "1+elu",
    },
    "performer": {"attention_types": "performer*6", "performer_features": 64},
    "cosformer": {"attention_types": "cosformer*6", "cosformer_length": 512},
}


@names
def test_parameter_counts(name):
    """The specification's, to the last one."""
    count = 50_265 if name.startswith("roberta") else 267_744
    words = mock.MagicMock()
    words.__len__.return_value, words.pad.return_value = count, PAD
    sides = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    cfg = MODEL_DATACLASS_REGISTRY[name]()
    with torch.device("meta"):
        model = MODEL_REGISTRY[name].build_model(cfg, sides)
    expected = 124_696_665 if name.startswith("roberta") else 156_000_256
    assert sum(p.numel() for p in model.parameters()) == expected


@names
def test_values(name):
    values, base = defaults(name), name.removeprefix("roberta_")
    expected = (ROBERTA_AROUND if base != name else AROUND) | OWN[base]
    expected |= OURS
    if base != name:
        expected = {
            k: v.replace("*6", "*12") if k == "attention_types" else v
            for k, v in expected.items()
        }
        expected |= {"cosformer_length": 0} if base == "cosformer" else {}
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({}, 512),
        ({"cosformer_length": 40}, 40),
        ({"cosformer_length": 40, "max_target_positions": 16}, 16),
        ({"cosformer_length": 40, "max_target_positions": 100}, 40),
        ({"attention_types": "norm,cosformer", "cosformer_length": 40}, 40),
    ],
)
def test_fairseq_is_told_what_the_layers_can_read(changes, longest):
    """... or what is asked for, if that is less."""
    assert build("cosformer_tiny", **changes).max_positions() == longest


@names
def test_weights_start_as_fairseqs(name):
    """Its transformer's initialisation, and BERT's."""
    size = {"embed_dim": 256, "ffn_dim": 512}
    family = "roberta_" if name.startswith("roberta") else ""
    vanilla = MODEL_DATACLASS_REGISTRY[f"{family}vanilla_transformer_tiny"](
        attention_types="softmax", **size
    )
    (types, *_) = OWN[name.removeprefix("roberta_")]["attention_types"].split("*")
    ours = build(f"{name}_tiny", attention_types=types, **size).state_dict()
    compared = 0
    for key, theirs in renamed(fairseq_model(vanilla).state_dict(), tied=True).items():
        # RoBERTa leaves its output layer to torch
        if key not in ours or "lm_head" in key:
            continue
        tolerance = 0.06 if theirs.dim() == 2 else 0.3
        expected = pytest.approx(theirs.std().item(), rel=tolerance, abs=1e-6)
        assert ours[key].std().item() == expected, key
        assert ours[key].mean().item() == pytest.approx(
            theirs.mean().item(), abs=0.3 * theirs.std().item() + 1e-6
        ), key
        compared += 1
    assert compared >= 16
