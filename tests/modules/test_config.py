"""Configurations: what is allowed, what is refused, and how it is said."""

import dataclasses
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_transnormer.modules import (
    CausalLanguageModel,
    ClassifierConfig,
    EncoderConfig,
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelConfig,
    LanguageModelT1Config,
    LanguageModelT2Config,
    LayerConfig,
    LayerStack,
    MaskedLanguageModel,
    SequenceClassifier,
    parse_attention_types,
    register_attention,
    token_mixers,
)
from fairseq_transnormer.modules.config import T1, with_defaults
from fairseq_transnormer.modules.options import Choice
from tests.messages import refuses

CONFIGS = (
    LayerConfig,
    LanguageModelConfig,
    EncoderConfig,
    LanguageModelT1Config,
    LanguageModelT2Config,
    EncoderT1Config,
    EncoderT2Config,
)
MODELS = {LanguageModelConfig: CausalLanguageModel, EncoderConfig: MaskedLanguageModel}
CHOICES = [
    (config, each.name, each.type)
    for config in MODELS
    for each in dataclasses.fields(config)
    if isinstance(each.type, type) and issubclass(each.type, Choice)
]
NUMBERS = {
    "embed_dim": (0, -8),
    "num_heads": (0, -1),
    "block_size": (0, -64),
    "ffn_dim": (0, -3),
    "dropout": (-0.1, 1.0, 2.0, math.nan),
    "attention_dropout": (-0.1, 1.0, math.nan),
    "activation_dropout": (-0.1, 1.0, math.nan),
    "lrpe_base": (0.0, -10.0, math.nan, math.inf),
    "norm_eps": (0.0, -1e-8, math.nan, math.inf),
    "attention_norm_eps": (0.0, -1e-8, math.nan, math.inf),
    "max_positions": (0, -512),
}


def test_wrong_choices_are_answered_with_the_right_ones():
    for config, field, kind in CHOICES:
        with refuses(ValueError, f"{field}='nonsense'", *kind):
            config(**{field: "nonsense"})


def test_right_choices_become_members_and_stay_strings():
    for config, field, kind in CHOICES:
        for member in kind:
            value = getattr(config(**{field: member.value}), field)
            assert value is member and value == member.value == str(value)


@pytest.mark.parametrize(
    ("field", "value"), [(f, v) for f, values in NUMBERS.items() for v in values]
)
def test_wrong_numbers_are_named(field, value):
    described = {each.name: each.metadata for each in dataclasses.fields(EncoderConfig)}
    bounds = [described[field].get(key) for key in ("at_least", "above", "below")]
    allowed = [f"{bound:g}" for bound in bounds if bound is not None]
    with refuses(ValueError, f"{field}={value}", *allowed):
        EncoderConfig(**{field: value})


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("untie_output_embedding", "false", ["True", "False"]),
        ("no_final_norm", 1, ["True", "False"]),
        ("num_heads", True, ["integer", "at least 1"]),
        ("block_size", 8.5, ["integer", "at least 1"]),
        ("block_size", "8", ["integer", "at least 1"]),
        ("embed_dim", 32.0, ["integer", "at least 1"]),
        ("ffn_dim", None, ["integer", "at least 1"]),
        ("dropout", "0.1", ["number", "at least 0", "below 1"]),
        ("attention_types", 3, ["text"]),
    ],
)
def test_values_of_another_type_are_named(field, value, allowed):
    with refuses(ValueError, f"{field}={value!r}", *allowed):
        EncoderConfig(**{field: value})


@pytest.mark.parametrize(
    ("kind", "build"),
    [
        (LanguageModelConfig, lambda c: CausalLanguageModel(c, 10)),
        (EncoderConfig, lambda c: MaskedLanguageModel(c, 10)),
        (ClassifierConfig, lambda c: SequenceClassifier(c, 10, 2)),
        (LanguageModelConfig, lambda c: LayerStack(c, causal=True)),
    ],
    ids=["causal", "masked", "classifier", "stack"],
)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("norm_position", "prenorm"),
        ("positional_embedding", "sinusoid"),
        ("relative_position", "rope"),
        ("dropout", 1.7),
    ],
)
def test_a_value_set_later_is_checked_too(kind, build, field, value):
    config = kind(embed_dim=8, num_heads=2, ffn_dim=8)
    setattr(config, field, value)
    with refuses(ValueError, f"{field}={value!r}"):
        build(config)


@pytest.mark.parametrize(
    ("model", "config"),
    [(CausalLanguageModel, LanguageModelConfig), (MaskedLanguageModel, EncoderConfig)],
)
def test_pads_and_tokens_fit_the_model(model, config):
    small = config(attention_types="norm", embed_dim=8, num_heads=2, ffn_dim=8)
    for padding_idx in (-1, 10, None):
        with refuses(ValueError, f"padding_idx={padding_idx}", 0, 9):
            model(small, 10, padding_idx)
    with refuses(ValueError, "tokens", (3,), "(batch, length"):
        model(small, 10)(torch.tensor([3, 4, 5]))


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


WRONG = ["", ",", "diag,", ",diag", "diag*", "*3", "diag*0", "diag*-1", "diag*1.5"]
WRONG += ["diag norm", "diag*3*2", "3*diag", "diagonal", "Diag", "diag;norm", "diag*03"]


@pytest.mark.parametrize("notation", WRONG)
def test_wrong_notations_are_named(notation):
    with refuses(ValueError, f"attention_types={notation!r}", *token_mixers()):
        parse_attention_types(notation)


@given(st.text(alphabet="diagnorm*,0123 ", max_size=12))
def test_notations_are_read_or_refused(notation):
    try:
        layers = parse_attention_types(notation)
    except ValueError as error:
        assert repr(notation) in str(error)
    else:
        assert layers and set(layers) <= set(token_mixers())


def test_what_cannot_be_registered_is_named():
    with refuses(ValueError, "'diag'", "registered", *token_mixers()):
        register_attention("diag")(type("Another", (), {}))


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


@pytest.mark.parametrize("config", CONFIGS)
def test_pickling(config):
    value = config(dropout=0.25)
    copied = pickle.loads(pickle.dumps(value))
    assert type(copied) is config and copied == value


@pytest.mark.parametrize("config", CONFIGS)
def test_every_field_has_a_help_text_and_a_real_type(config):
    for each in dataclasses.fields(config):
        assert each.metadata["help"]
        assert isinstance(each.type, type)
