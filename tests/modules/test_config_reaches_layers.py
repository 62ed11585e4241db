"""Each value of a configuration changes what it says it changes, and is not lost.

A mixer's own fields: token_mixers/test_options.py.
"""

import dataclasses

import pytest
import torch

from fairseq_transnormer.modules import CausalLanguageModel, SimpleRMSNorm
from fairseq_transnormer.modules.attention import Attention
from fairseq_transnormer.modules.norms import build_norm

from .building import (
    CAUSAL_CONFIGS,
    SMALL,
    draw_tokens,
    language_model,
    models,
    token_mixer,
    variants,
)

ALMOST_ONE = 1 - 1e-12  # dropout has to be below 1


@models
@variants
@torch.no_grad()
def test_a_model_follows_its_fields(variant, build):
    changes = {
        "norm_type": "layer_norm",
        "norm_position": "post" if build is language_model else "pre",
        "ffn_type": "ffn",
        "ffn_activation": "relu",
        "positional_embedding": "none",
        "attention_types": "norm*2,diag*2",
        "norm_eps": 0.5,
        "relative_position": "none",
        "lrpe_base": 3.0,
        "attention_norm_eps": 0.5,
    }
    tokens = draw_tokens(2, 20)

    def output(**changes):
        torch.manual_seed(1)
        return build(variant, **changes)(tokens)

    default = output()
    for field, value in changes.items():
        assert not torch.allclose(output(**{field: value}), default), field


@torch.no_grad()
def test_the_embedding_is_scaled_unless_told_otherwise():
    tokens, hidden = draw_tokens(2, 5), {True: [], False: []}
    for unscaled in hidden:
        model = language_model(
            "t2", no_scale_embedding=unscaled, positional_embedding="none"
        )
        model.features(tokens, hidden_states=hidden[unscaled])
        embedded = model.embed_tokens.weight[tokens]
        factor = 1 if unscaled else 4
        torch.testing.assert_close(hidden[unscaled][0], factor * embedded)


@models
def test_every_module_gets_the_eps_and_the_backend(build):
    model = build("t1", norm_eps=0.125, attention_norm_eps=0.25, backend="reference")
    norms = [m for m in model.modules() if isinstance(m, SimpleRMSNorm)]
    # two a layer, one in each attention of T1, and the final one of pre-norm layers
    assert len(norms) == 4 * 3 + (build is language_model)
    inside = {
        module.norm for module in model.modules() if isinstance(module, Attention)
    }
    assert len(inside) == 4
    assert {norm.eps for norm in inside} == {0.25}
    assert {norm.eps for norm in norms if norm not in inside} == {0.125}
    backends = [m.backend for m in model.modules() if hasattr(m, "backend")]
    assert len(backends) > len(norms) and set(backends) == {"reference"}
    assert build_norm("layer_norm", 4, 0.125).eps == 0.125


@models
@variants
def test_dropout_of_the_embedding_and_of_each_part(variant, build):
    """With nearly everything dropped nothing is left behind the embedding."""
    model = build(variant, dropout=ALMOST_ONE).train()
    hidden = []
    model.features(draw_tokens(2, 9), hidden_states=hidden)
    assert len(hidden) == 5 and all((h == 0).all() for h in hidden)


@models
@variants
def test_dropout_inside_the_channel_mixer(variant, build):
    model = build(variant, activation_dropout=ALMOST_ONE).train()
    mixer = model.stack.layers[0].feed_forward
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    torch.testing.assert_close(mixer(x), mixer.out_proj.bias.expand_as(x))


@variants
@pytest.mark.parametrize("causal", [False, True])
def test_dropout_of_attention_weights(causal, variant):
    layer = token_mixer("diag", variant, causal=causal, attention_dropout=ALMOST_ONE)
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    nothing = layer.out_proj.bias.expand_as(x)
    torch.testing.assert_close(layer.train()(x)[0], nothing)
    assert not torch.allclose(layer.eval()(x)[0], nothing)


@models
@variants
@torch.no_grad()
def test_nothing_is_dropped_in_evaluation(variant, build):
    names = ("dropout", "attention_dropout", "activation_dropout")
    tokens, outputs = draw_tokens(2, 9), []
    for p in (0.0, 0.9):
        torch.manual_seed(1)
        outputs.append(build(variant, **dict.fromkeys(names, p))(tokens))
    assert torch.equal(*outputs)


def test_configurations_are_left_as_they_are():
    config = CAUSAL_CONFIGS["t1"](**SMALL)
    before = dataclasses.asdict(config)
    CausalLanguageModel(config, 10)
    assert dataclasses.asdict(config) == before
