"""How weights start (specification, "init")."""

import math

import pytest
import torch

from fairseq_transnormer.modules import (
    ATTENTIONS,
    Attention,
    CausalLanguageModel,
    EncoderConfig,
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelConfig,
    LanguageModelT1Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
    token_mixers,
)

from .building import SMALL

PAD, VOCABULARY = 1, 500
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


def is_uniform(weight, bound):
    """All values within the bound, and spread as a uniform distribution's."""
    assert weight.abs().max() <= bound * 1.0001
    assert weight.abs().max() > 0.99 * bound
    assert abs(weight.std().item() / (bound / math.sqrt(3)) - 1) < 0.02
    assert abs(weight.mean().item()) < 0.01 * bound
    return True


def is_normal(weight, std):
    assert abs(weight.std().item() / std - 1) < 0.02
    assert abs(weight.mean().item()) < 0.02 * std
    # 4.6 % of a normal distribution lie beyond two deviations, of a uniform one none
    assert 0.035 < (weight.abs() > 2 * std).float().mean() < 0.056
    return True


@pytest.mark.parametrize("config", [LanguageModelT1Config(), LanguageModelT2Config()])
def test_causal_models(config):
    model = CausalLanguageModel(config, VOCABULARY, PAD)
    for i, layer in enumerate(model.stack.layers):
        for name in PROJECTIONS:
            gain = 1.0 if i < 3 or name == "out_proj" else 1 / math.sqrt(2)
            projection = getattr(layer.attention, name)
            assert is_uniform(projection.weight, gain * math.sqrt(6 / (512 + 512)))
        assert (layer.attention.out_proj.bias == 0).all()
    embedding = model.embed_tokens.weight
    assert (embedding[PAD] == 0).all()
    assert is_normal(torch.cat((embedding[:PAD], embedding[PAD + 1 :])), 512**-0.5)


@pytest.mark.parametrize("config", [EncoderT1Config(), EncoderT2Config()])
@pytest.mark.parametrize("untied", [False, True])
def test_bidirectional_models(config, untied):
    config.untie_output_embedding = untied
    config.attention_types = "diag,norm"
    model = MaskedLanguageModel(config, VOCABULARY, PAD)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            assert is_normal(module.weight, 0.02)
            assert (module.bias == 0).all()
    for embedding in (model.embed_tokens, model.embed_positions):
        assert (embedding.weight[PAD] == 0).all()
        assert is_normal(embedding.weight[PAD + 1 :], 0.02)
    assert is_normal(model.lm_head.weight[PAD + 1 :], 0.02)
    assert (model.lm_head.bias == 0).all()
    for norm in (model.embed_norm, model.lm_head.layer_norm):
        assert (norm.weight == 1).all() and (norm.bias == 0).all()


@pytest.fixture
def empty_memory_is_nan():
    """What ``torch.empty`` returns; else it may hold an earlier model's weights."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def test_registered_attentions_with_other_modules(monkeypatch):
    """A bias, and a row of an embedding for pads, are no module's duty."""

    class Mine(Attention):
        def __init__(self, config, *, causal):
            super().__init__(config, causal=causal)
            self.plain = torch.nn.Linear(200, 200, bias=False)
            self.table = torch.nn.Embedding(200, 200)

        def attend(self, query, key, value, *others):
            return value.flatten(2), None

    monkeypatch.setitem(ATTENTIONS, "mine", Mine)
    config = EncoderConfig(**SMALL | {"attention_types": "mine"})
    attention = MaskedLanguageModel(config, VOCABULARY, PAD).stack.layers[0].attention
    assert is_normal(attention.plain.weight, 0.02)
    assert is_normal(attention.table.weight, 0.02)


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("attention", token_mixers())
def test_no_weight_is_left_as_memory_was(empty_memory_is_nan, attention, untied):
    common = SMALL | {"attention_types": attention, "untie_output_embedding": untied}
    models = [MaskedLanguageModel(EncoderConfig(**common), VOCABULARY, PAD)]
    if attention in token_mixers(causal=True):
        config = LanguageModelConfig(**common)
        models.append(CausalLanguageModel(config, VOCABULARY, PAD))
    for model in models:
        for name, value in model.state_dict().items():
            assert value.isfinite().all(), name


def test_the_untied_head_is_drawn_apart(empty_memory_is_nan):
    config = EncoderConfig(**SMALL, untie_output_embedding=True)
    model = MaskedLanguageModel(config, VOCABULARY, PAD)
    head = model.lm_head.weight
    assert head is not model.embed_tokens.weight
    assert is_normal(head[PAD + 1 :], 0.02)
    both = torch.stack((head.flatten(), model.embed_tokens.weight.flatten()))
    assert abs(torch.corrcoef(both)[0, 1]) < 0.05


def test_the_pad_row_gets_no_gradient():
    config = LanguageModelT2Config(untie_output_embedding=True, attention_types="norm")
    model = CausalLanguageModel(config, VOCABULARY, PAD)
    model(torch.tensor([[PAD, 5, 7]])).sum().backward()
    assert (model.embed_tokens.weight.grad[PAD] == 0).all()


@pytest.mark.parametrize("name", ["flash_quad", "flash"])
@pytest.mark.parametrize("causal", [True, False])
def test_gated_attention_units(causal, name):
    types = {"attention_types": f"{name}*2"}
    if causal:
        model = CausalLanguageModel(LanguageModelConfig(**types), 10)
    else:
        model = MaskedLanguageModel(EncoderConfig(embed_dim=768, **types), 10)
    for layer in model.stack.layers:
        for module in layer.children():
            if isinstance(module, torch.nn.Linear):
                assert is_normal(module.weight, 0.02)
                assert (module.bias == 0).all()
        assert (layer.norm.weight == 1).all() and (layer.offset == 0).all()
        bias = layer.relative_bias
        for small in (layer.gain, bias.table, bias.a, bias.b):
            assert 0.015 < small.std() < 0.025


def test_transformer_ls():
    config = LanguageModelConfig(attention_types="long_short*2", output_bias=True)
    model = CausalLanguageModel(config, 10)
    assert (model.output_bias == 0).all()
    for layer in model.stack.layers:
        attention = layer.attention
        for name in ("q_proj", "k_proj", "v_proj"):
            bound = math.sqrt(0.5 * 6 / 1024)
            assert is_uniform(getattr(attention, name).weight, bound)
        assert (attention.out_proj.bias == 0).all()
        for vector in (attention.softmax.content_bias, attention.softmax.position_bias):
            assert (vector == 0).all()
