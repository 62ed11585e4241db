"""A variant's values come from --arch and from Hydra alike; the user's always win."""

import dataclasses
import functools
from enum import Enum

import pytest
from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_DATACLASS_REGISTRY, build_model
from hydra import compose, initialize
from omegaconf import OmegaConf

from fairseq_transnormer.modules import (
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelT1Config,
    LanguageModelT2Config,
)

from .building import CAUSAL, VARIANTS, draw_tokens, task

variants = pytest.mark.parametrize("name", VARIANTS)
PAPER = {
    "transnormer_t1": LanguageModelT1Config,
    "transnormer_t2": LanguageModelT2Config,
    "roberta_transnormer_t1": EncoderT1Config,
    "roberta_transnormer_t2": EncoderT2Config,
}
TINY = {
    "attention_types": "diag,norm",
    "embed_dim": 32,
    "num_heads": 2,
    "ffn_dim": 85,
    "block_size": 8,
}
# values that no variant has by default, where a type does not offer one
OTHER = {
    "attention_types": "norm,diag*2",
    "lrpe_base": 500.0,
    "norm_eps": 1e-5,
    "dropout": 0.25,
    "attention_dropout": 0.35,
    "activation_dropout": 0.45,
    "pooler_dropout": 0.15,
    "pooler_activation_fn": "relu",
    "max_target_positions": 77,
    "gradient_statistics": "gradients.jsonl",
    "peak_tflops": 123.5,
}


def plain(cfg):
    """Values of a configuration as plain numbers and strings, without its name."""
    values = OmegaConf.to_container(cfg, enum_to_str=True)
    return {key: value for key, value in values.items() if key != "_name"}


def own_fields(name):
    dataclass = MODEL_DATACLASS_REGISTRY[name]
    return [each for each in dataclasses.fields(dataclass) if each.name != "_name"]


def defaults(name):
    return {
        each.name: str(each.default) if isinstance(each.default, Enum) else each.default
        for each in own_fields(name)
    }


def from_command_line(name, values):
    task_name = "language_modeling" if name in CAUSAL else "masked_lm"
    words = ["DATA", "--task", task_name, "--arch", name]
    for key, value in values.items():
        option = "--" + key.replace("_", "-")
        words += [option] if value is True else [option, str(value)]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    return convert_namespace_to_omegaconf(args).model


register = functools.cache(hydra_init)


def from_hydra_group(name, values):
    """``model=NAME model.field=value``."""
    register()
    overrides = [f"+model={name}"]
    overrides += [
        f"model.{key}='{value}'" if isinstance(value, str) else f"model.{key}={value}"
        for key, value in values.items()
    ]
    with initialize(config_path=None, version_base="1.1"):
        cfg = compose("config", overrides=overrides)
    add_defaults(cfg)
    return cfg.model


def from_yaml(name, values):
    """``model: {_name: NAME, field: value}``."""
    cfg = OmegaConf.create({"model": {"_name": name, **values}})
    add_defaults(cfg)
    return cfg.model


WAYS = [from_command_line, from_hydra_group, from_yaml]
ways = pytest.mark.parametrize("way", WAYS)
# of each family two that differ in most of their fields
UNLIKE = [
    ("transnormer_t1_tiny", "transnormer_t2"),
    ("roberta_transnormer_t2", "roberta_transnormer_t1_tiny"),
]


def changed_value(each):
    """A value unlike the default, for a field of a dataclass."""
    if each.name in OTHER:
        return OTHER[each.name]
    if isinstance(each.default, bool):
        return not each.default
    if isinstance(each.default, Enum):
        return next(str(m) for m in type(each.default) if m != each.default)
    return each.default + 1


@pytest.mark.parametrize(
    ("way", "name"),
    [
        # composing is slow, and knows of a name what the YAML does
        *((from_hydra_group, name) for _, name in UNLIKE),
        *((way, name) for way in (from_command_line, from_yaml) for name in VARIANTS),
    ],
)
def test_defaults_are_the_variants(way, name):
    values = plain(way(name, {}))
    assert values == defaults(name)
    paper = PAPER[name.removesuffix("_tiny")]()
    expected = {
        k: str(v) if isinstance(v, Enum) else v
        for k, v in dataclasses.asdict(paper).items()
    }
    if name.endswith("tiny"):
        expected |= TINY
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize("name", [name for name, _ in UNLIKE])
@ways
def test_every_field_can_be_set(way, name):
    changes = {each.name: changed_value(each) for each in own_fields(name)}
    assert all(changes[key] != value for key, value in defaults(name).items())
    assert plain(way(name, changes)) == changes


@variants
def test_fairseq_builds_the_variant(name):
    changes = TINY | {"backend": "reference", "dropout": 0.0}
    model = build_model(from_yaml(name, changes), task())
    assert type(model).__name__ == name
    core = (model.decoder if name in CAUSAL else model.encoder).model
    diag, norm = (layer.attention for layer in core.stack.layers)
    relu = "t1" in name
    assert diag.activation == ("relu" if relu else "softmax")
    assert type(diag.norm).__name__ == ("SimpleRMSNorm" if relu else "Identity")
    assert norm.backend == "reference"
    assert model(draw_tokens(2, 9))[0].shape == (2, 9, len(task().dictionary))
