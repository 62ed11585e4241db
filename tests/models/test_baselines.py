"""The baselines as fairseq architectures: counts, values, and vanilla against ours."""

import pickle
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.models.roberta.model import RobertaEncoder
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase

from tests.messages import refuses

from .building import BASELINES, build, draw_tokens, task
from .test_variants import (
    changed_value,
    defaults,
    from_hydra_group,
    own_fields,
    plain,
    ways,
)

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
    "vanilla_transformer": {"num_layers": 6},
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
    # fairseq's draws on the CPU, where a meta tensor cannot go
    unfilled = mock.patch("fairseq.models.roberta.model.init_bert_params", lambda m: m)
    with torch.device("meta"), unfilled:
        model = MODEL_REGISTRY[name].build_model(cfg, sides)
    expected = 124_696_665 if name.startswith("roberta") else 156_000_256
    assert sum(p.numel() for p in model.parameters()) == expected


@names
def test_values(name):
    values, base = defaults(name), name.removeprefix("roberta_")
    expected = (ROBERTA_AROUND if base != name else AROUND) | OWN[base]
    if base != "vanilla_transformer":
        expected |= OURS
    if base != name:
        expected = {
            k: v.replace("*6", "*12") if k == "attention_types" else v
            for k, v in expected.items()
        }
        expected |= {
            "vanilla_transformer": {"num_layers": 12},
            "cosformer": {"cosformer_length": 0},
        }.get(base, {})
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize(
    "name", ["vanilla_transformer", "roberta_vanilla_transformer", "roberta_cosformer"]
)
@ways
def test_every_field_can_be_set(way, name):
    changes = {each.name: changed_value(each) for each in own_fields(name)}
    if "num_layers" in changes:
        changes["num_heads"] = changes["embed_dim"]  # a divisor
    assert plain(way(name, changes)) == changes
    if way is not from_hydra_group:
        assert plain(way(name, {})) == defaults(name)


@pytest.mark.parametrize("name", ["vanilla_transformer", "roberta_vanilla_transformer"])
@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"num_heads": 5}, ["num_heads=5", "divisors", "embed_dim"]),
        ({"dropout": 1.5}, ["dropout=1.5", "at least 0", "below 1"]),
        ({"ffn_activation": "silu"}, ["ffn_activation='silu'", "relu", "gelu"]),
        ({"num_layers": 0}, ["num_layers=0", "at least 1"]),
    ],
)
def test_wrong_values_are_named(name, changes, parts):
    with refuses(ValueError, *parts):
        build(f"{name}_tiny", **changes)


@names
def test_pickling(name):
    model, tokens = build(f"{name}_tiny"), draw_tokens(1, 5)
    copied = pickle.loads(pickle.dumps(model))
    assert torch.equal(copied(tokens)[0], model(tokens)[0])


def test_vanilla_is_made_of_fairseqs_modules():
    decoder = build("vanilla_transformer_tiny").decoder
    assert isinstance(decoder, TransformerDecoderBase)
    assert type(decoder).forward is TransformerDecoderBase.forward
    layer = decoder.layers[0]
    assert isinstance(layer, TransformerDecoderLayerBase)
    assert layer.normalize_before and decoder.layer_norm is not None
    encoder = build("roberta_vanilla_transformer_tiny").encoder
    assert type(encoder) is RobertaEncoder
    assert not encoder.sentence_encoder.layers[0].normalize_before


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


def test_vanillas_options_reach_fairseqs_modules():
    options = {
        "dropout": 0.2,
        "attention_dropout": 0.3,
        "activation_dropout": 0.4,
        "ffn_activation": "gelu",
        "norm_position": "post",
        "untie_output_embedding": True,
    }
    model = build("vanilla_transformer_tiny", no_scale_embedding=True, **options)
    encoder = build(
        "roberta_vanilla_transformer_tiny",
        **(options | {"norm_position": "pre"}),
    ).encoder
    decoder = model.decoder
    assert decoder.embed_scale == 1 and decoder.layer_norm is None
    assert decoder.output_projection.weight is not decoder.embed_tokens.weight
    embedding = encoder.sentence_encoder.embed_tokens.weight
    assert encoder.lm_head.weight is not embedding
    for stack in (decoder, encoder.sentence_encoder):
        layer = stack.layers[0]
        assert stack.dropout_module.p == layer.dropout_module.p == 0.2
        assert layer.self_attn.dropout_module.p == 0.3
        assert layer.activation_dropout_module.p == 0.4
        x = torch.randn(5)
        torch.testing.assert_close(layer.activation_fn(x), torch.nn.functional.gelu(x))
        assert layer.normalize_before == (stack is not decoder)


def softmax_twin(name, **attention):
    """Our layers with softmax attention, and the values that vanilla has."""
    values = {
        key: value
        for key, value in defaults("roberta_linear_transformer_tiny").items()
        if name.startswith("roberta_")
    }
    values = values or defaults("linear_transformer_tiny")
    family = "roberta_" if name.startswith("roberta_") else ""
    values |= attention
    return build(f"{family}linear_transformer_tiny", **values).double()


OUR_NAMES = {
    "self_attn.": "attention.",
    "self_attn_layer_norm": "attention_norm",
    "fc1": "feed_forward.in_proj",
    "fc2": "feed_forward.out_proj",
    "final_layer_norm": "feed_forward_norm",
    "decoder.layer_norm": "decoder.stack.final_norm",
    "layers.": "stack.layers.",
    "layernorm_embedding": "embed_norm",
    "sentence_encoder.": "",
}


def our_weights(vanilla, part):
    """fairseq's weights under the names of our modules."""
    weights = {}
    for key, value in vanilla.state_dict().items():
        for theirs, our in OUR_NAMES.items():
            key = key.replace(theirs, our)
        weights[key.replace(f"{part}.", f"{part}.model.", 1)] = value
    return weights


@pytest.mark.parametrize(
    "attention",
    [
        {"attention_types": "softmax*2"},
        # one block for all of a text, as in Table 4's "Vanilla with LRPE"
        {"attention_types": "diag*2", "block_size": 32},
    ],
    ids=["softmax", "diag"],
)
@pytest.mark.parametrize("name", ["vanilla_transformer", "roberta_vanilla_transformer"])
@torch.no_grad()
def test_fairseqs_layers_equal_ours_with_softmax_attention(name, attention):
    """... of the same weights, also with pads."""
    vanilla = build(f"{name}_tiny").double()
    ours = softmax_twin(name, **attention)
    for parameter in vanilla.parameters():  # biases, too
        parameter.add_(0.1 * torch.randn_like(parameter))
    part = "encoder" if name.startswith("roberta") else "decoder"
    weights = our_weights(vanilla, part)
    kept = ours.state_dict().keys()
    weights = {key: value for key, value in weights.items() if key in kept}
    assert weights.keys() == kept
    ours.load_state_dict(weights)
    tokens = draw_tokens(3, 17)
    tokens[1, 9:] = PAD
    real = tokens.ne(PAD)
    expected, found = vanilla(tokens)[0][real], ours(tokens)[0][real]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_vanilla_read_in_parts_equals_fairseqs_one_pass():
    """What generation runs; rows of unequal length, then rows moved."""
    decoder = build("vanilla_transformer_tiny").double().decoder
    tokens = draw_tokens(3, 21)
    prompts = tokens[:, :8].clone()
    prompts[0, 3:], prompts[1, 7:] = PAD, PAD
    features, states = decoder.model.features(prompts, return_states=True)
    rest = tokens[:, 8:]
    for part in rest.split((1, 5, 1, 6), 1):
        features, states = decoder.model.features(part, states, return_states=True)
    assert states[0].length.tolist() == [16, 20, 21]
    for b, length in enumerate((3, 7, 8)):
        whole = torch.cat((tokens[b, :length], rest[b]))[None]
        expected = decoder.extract_features(whole, None)[0][0, -6:]
        torch.testing.assert_close(features[b], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", BASELINES[1:])
@pytest.mark.parametrize("family", ["", "roberta_"])
def test_weights_start_as_vanillas(name, family):
    """fairseq's initialisation, and BERT's."""
    size = {"embed_dim": 256, "ffn_dim": 512}
    vanilla = build(f"{family}vanilla_transformer_tiny", num_layers=1, **size)
    (types, *_) = OWN[name]["attention_types"].split("*")
    ours = build(f"{family}{name}_tiny", attention_types=types, **size).state_dict()
    part = "encoder" if family else "decoder"
    compared = 0
    for key, theirs in our_weights(vanilla, part).items():
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
