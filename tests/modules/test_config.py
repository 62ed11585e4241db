"""Configurations: what is allowed, what is refused, and how it is said."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_transnormer.modules import (
    CausalLanguageModel,
    EncoderConfig,
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelConfig,
    LanguageModelT1Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
    parse_attention_types,
    token_mixers,
)
from fairseq_transnormer.modules.config import T1, with_defaults
from fairseq_transnormer.modules.options import Choice
from tests.messages import refuses

MODELS = {LanguageModelConfig: CausalLanguageModel, EncoderConfig: MaskedLanguageModel}
CHOICES = [
    (config, each.name, each.type)
    for config in MODELS
    for each in dataclasses.fields(config)
    if isinstance(each.type, type) and issubclass(each.type, Choice)
]
NUMBERS = {
    "embed_dim": (0, -8),
    "block_size": (0, 8.5, "8", True),
    "dropout": (-0.1, 1.0, math.nan),
    "norm_eps": (0.0, -1e-8, math.inf),
    "max_positions": (0, -512),
}


def test_wrong_choices_are_answered_with_the_right_ones():
    for config, field, kind in CHOICES:
        with refuses(ValueError, f"{field}='nonsense'", *kind):
            config(**{field: "nonsense"})


@pytest.mark.parametrize(
    ("field", "value"), [(f, v) for f, values in NUMBERS.items() for v in values]
)
def test_wrong_numbers_are_named(field, value):
    with refuses(ValueError, f"{field}={value!r}"):
        EncoderConfig(**{field: value})


def test_what_fits_only_together():
    config = LanguageModelConfig(embed_dim=512, num_heads=7)
    with refuses(ValueError, "num_heads=7", "divisors", "embed_dim=512"):
        CausalLanguageModel(config, 10)
    config = LanguageModelConfig(embed_dim=6, num_heads=2)
    with refuses(ValueError, "head_dim=3", "even", "relative_position='none'"):
        CausalLanguageModel(config, 10)
    CausalLanguageModel(dataclasses.replace(config, relative_position="none"), 10)
    config = LanguageModelConfig(positional_embedding="learned")
    with refuses(ValueError, "positional_embedding='learned'", "sinusoidal", "none"):
        CausalLanguageModel(config, 10)
    config = EncoderConfig(
        embed_dim=2, num_heads=1, positional_embedding="sinusoidal", ffn_dim=2
    )
    with refuses(ValueError, "embed_dim=2", "4 or more"):
        MaskedLanguageModel(config, 10)
    for model, kind in (
        (CausalLanguageModel, LanguageModelConfig),
        (MaskedLanguageModel, EncoderConfig),
    ):
        wrong = ("attention_types='diag,liner'", "'liner'")
        with refuses(ValueError, *wrong, *token_mixers()):
            model(kind(attention_types="diag,liner"), 10)


# what a causal model refuses, and what this machine cannot run
REFUSED = {(LanguageModelConfig, "positional_embedding", "learned")}
if not torch.cuda.is_available():
    REFUSED |= {(config, "backend", "triton") for config in MODELS}


@pytest.mark.parametrize("config", MODELS)
def test_every_choice_builds_and_runs_or_is_refused(config):
    """... in a model of its family, with values that no other field contradicts."""
    small = {"attention_types": "diag,norm", "embed_dim": 8, "num_heads": 2}
    for field, member in (
        (field, member.value)
        for of, field, kind in CHOICES
        if of is config
        for member in kind
    ):
        values = config(**small, ffn_dim=8, **{field: member})
        model, tokens = MODELS[config], torch.tensor([[3, 4, 5]])
        if (config, field, member) in REFUSED:
            with refuses(ValueError, member):
                model(values, 10).train()(tokens)
        else:
            assert model(values, 10).train()(tokens).isfinite().all(), (field, member)


names = st.sampled_from(token_mixers())
space = st.sampled_from(("", " ", "  ", "\t"))
entry = st.tuples(names, st.none() | st.integers(1, 12), space, space, space)


@given(st.lists(entry, min_size=1, max_size=6))
def test_notation_of_layers(entries):
    parts, expected = [], []
    for name, count, before, between, after in entries:
        repeated = "" if count is None else f"{between}*{between}{count}"
        parts.append(f"{before}{name}{repeated}{after}")
        expected += [name] * (1 if count is None else count)
    assert parse_attention_types(",".join(parts)) == expected


@given(st.text(alphabet="diagnorm*,0123 ", max_size=12))
def test_notations_are_read_or_refused(notation):
    try:
        layers = parse_attention_types(notation)
    except ValueError as error:
        assert repr(notation) in str(error)
    else:
        assert layers and set(layers) <= set(token_mixers())


def test_with_defaults_changes_defaults_only():
    @with_defaults(dropout=0.3)
    class Changed(LanguageModelConfig):
        pass

    before = {each.name: each for each in dataclasses.fields(LanguageModelConfig)}
    after = {each.name: each for each in dataclasses.fields(Changed)}
    assert before.keys() == after.keys()
    for name, field in after.items():
        assert field.type == before[name].type
        assert field.metadata == before[name].metadata
        expected = 0.3 if name == "dropout" else before[name].default
        assert field.default == expected
    assert LanguageModelConfig().dropout == 0.1
    assert Changed(dropout=0.1).dropout == 0.1
    with pytest.raises(KeyError):
        with_defaults(no_such_field=1)(type("Wrong", (LanguageModelConfig,), {}))


def test_values_of_the_paper():
    """T1 and T2 differ in three fields, and so do the families in six."""

    def differences(one, other):
        one, other = dataclasses.asdict(one), dataclasses.asdict(other)
        return {k: one[k] for k in one if k in other and one[k] != other[k]}

    t1, t2 = LanguageModelT1Config(), LanguageModelT2Config()
    assert differences(t1, t2) == {
        "diag_activation": "relu",
        "diag_norm": "simple_rms_norm",
        "norm_attention_activation": "elu",
    }
    assert differences(EncoderT1Config(), EncoderT2Config()) == differences(t1, t2)
    assert differences(EncoderT2Config(), t2) == {
        "attention_types": "diag*6,norm*6",
        "embed_dim": 768,
        "num_heads": 12,
        "ffn_dim": 2048,
        "norm_position": "post",
        "attention_dropout": 0.1,
        "positional_embedding": "learned",
    }
    assert t2.ffn_dim == int(8 / 3 * 512) and EncoderT2Config().ffn_dim == 8 * 768 // 3
    assert (t2.diag_activation, t2.diag_norm) == ("softmax", "none")
    assert set(T1) == set(differences(t1, t2))
