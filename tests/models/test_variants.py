"""A variant's values come from --arch and from Hydra alike; the user's always win."""

import dataclasses
import functools
import pickle
from enum import Enum
from itertools import permutations

import pytest
import torch
from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY, build_model
from hydra import compose, initialize
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, ValidationError

from fairseq_transnormer.modules import (
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelT1Config,
    LanguageModelT2Config,
)
from tests.messages import assert_names, refuses

from .building import CAUSAL, ENCODERS, VARIANTS, build, draw_tokens, task

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


@ways
def test_a_users_value_wins_where_it_is_another_variants_default(way):
    """Also where it is the default of the dataclass that both inherit."""
    pairs = UNLIKE
    if way is from_yaml:
        pairs = [*permutations(CAUSAL, 2), *permutations(ENCODERS, 2)]
    for name, other in pairs:
        changes = {k: v for k, v in defaults(other).items() if v != defaults(name)[k]}
        assert changes
        assert plain(way(name, changes)) == defaults(other)


# all fields together go every way, in test_every_field_can_be_set
@pytest.mark.parametrize("name", ["transnormer_t1", "roberta_transnormer_t1"])
def test_one_field_changes_itself_alone(name):
    for each in own_fields(name):
        value = changed_value(each)
        expected = defaults(name) | {each.name: value}
        assert plain(from_yaml(name, {each.name: value})) == expected


@pytest.mark.parametrize("name", ["transnormer_t2", "roberta_transnormer_t2"])
def test_wrong_choices_list_the_right_ones(name, capsys):
    choices = [each for each in own_fields(name) if isinstance(each.default, Enum)]
    for each in choices:
        with pytest.raises(SystemExit):
            from_command_line(name, {each.name: "nonsense"})
        lines = capsys.readouterr().err.splitlines()
        line = next(line for line in lines if "nonsense" in line)
        assert_names(line, f"--{each.name.replace('_', '-')}", *type(each.default))
        # composing is slow, and all choices are of one kind
        for way in (from_yaml, from_hydra_group)[: 1 + (each is choices[0])]:
            with pytest.raises(Exception) as error:
                way(name, {each.name: "nonsense"})
            message = f"{error.value}\n{error.value.__cause__}"
            assert_names(message, each.name, "nonsense", *type(each.default))


@variants
def test_unknown_fields_are_refused(name):
    with refuses(ConfigKeyError, "embed_dimm"):
        from_yaml(name, {"embed_dimm": 3})
    with pytest.raises(SystemExit):
        from_command_line(name, {"embed_dimm": 3})
    with refuses(ValidationError, "embed_dim", "wide"):
        from_yaml(name, {"embed_dim": "wide"})


def test_wrong_values_are_named_when_the_model_is_built():
    liner = ("attention_types='diag,liner'", "'liner'", "diag", "norm")
    for values, parts in (
        ({"dropout": 1.5}, ("dropout=1.5", "at least 0", "below 1")),
        ({"attention_types": "diag,liner"}, liner),
        ({"num_heads": 5}, ("num_heads=5", "divisors", "embed_dim")),
    ):
        for name in ("transnormer_t1_tiny", "roberta_transnormer_t1_tiny"):
            with refuses(ValueError, *parts):
                build_model(from_yaml(name, values), task())


@variants
def test_fairseq_builds_the_variant(name):
    changes = TINY | {"backend": "reference", "dropout": 0.0}
    model = build_model(from_yaml(name, changes), task())
    assert type(model).__name__ == name
    core = (model.decoder if name in CAUSAL else model.encoder).model
    diag, norm = (layer.attention for layer in core.stack.layers)
    relu = "t1" in name
    assert diag.activation == ("relu" if relu else "softmax")
    assert type(diag.norm).__name__ == ("SimpleRMSNorm" if relu else "NoNorm")
    assert norm.backend == "reference"
    assert model(draw_tokens(2, 9))[0].shape == (2, 9, len(task().dictionary))


@variants
def test_every_field_reaches_the_model(name):
    """No field is declared and forgotten: the model asks for each."""
    asked = set()

    class Asked:
        def __init__(self, cfg):
            self.__dict__["cfg"] = cfg

        def __getattr__(self, key):
            asked.add(key)
            return getattr(self.cfg, key)

    model = MODEL_REGISTRY[name].build_model(
        Asked(MODEL_DATACLASS_REGISTRY[name](**TINY)), task()
    )
    if name in ENCODERS:
        model.register_classification_head("one", num_classes=2)
        model.upgrade_state_dict_named(
            {
                f"classification_heads.x.{k}.weight": torch.zeros(2, 2)
                for k in ("dense", "out_proj")
            },
            "",
        )
    assert asked >= {each.name for each in own_fields(name)}


@variants
def test_pickling(name):
    config = MODEL_DATACLASS_REGISTRY[name](dropout=0.25)
    assert pickle.loads(pickle.dumps(config)) == config
    model = build(name, **TINY)
    tokens = draw_tokens(1, 5)
    copied = pickle.loads(pickle.dumps(model))
    assert torch.equal(copied(tokens)[0], model(tokens)[0])
