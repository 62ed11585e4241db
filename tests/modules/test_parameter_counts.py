"""The paper's parameter counts, to the last one (specification, "Parameter counts")."""

import dataclasses

import pytest
import torch

from fairseq_transnormer.modules import (
    ATTENTIONS,
    CausalLanguageModel,
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelT1Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
)

ALM_VOCABULARY, BLM_VOCABULARY = 267_744, 50_265


def count(module):
    return sum(p.numel() for p in module.parameters())


def build(model, config, vocabulary):
    with torch.device("meta"):
        return model(config, vocabulary)


@pytest.mark.parametrize("config", [LanguageModelT1Config(), LanguageModelT2Config()])
@pytest.mark.parametrize(
    ("relative_position", "total"), [("lrpe", 155_988_540), ("none", 155_987_964)]
)
def test_causal_models(relative_position, total, config):
    config = dataclasses.replace(config, relative_position=relative_position)
    model = build(CausalLanguageModel, config, ALM_VOCABULARY)
    assert count(model) == total
    assert count(model.embed_tokens) == 267_744 * 512 == 137_084_928
    lrpe = 96 if relative_position == "lrpe" else 0
    for layer in model.stack.layers:
        assert count(layer) == 3_150_602 - 96 + lrpe
        assert count(layer.attention) == 4 * (512**2 + 512) + lrpe
        assert count(layer.feed_forward) == 2_099_882
        assert count(layer.attention_norm) == count(layer.feed_forward_norm) == 0
    assert len(model.stack.layers) == 6
    assert count(model.stack.final_norm) == 0
    assert count(model) == 137_084_928 + 6 * (3_150_506 + lrpe)


@pytest.mark.parametrize("config", [EncoderT1Config(), EncoderT2Config()])
@pytest.mark.parametrize(
    ("relative_position", "total"), [("lrpe", 124_673_241), ("none", 124_672_089)]
)
def test_bidirectional_models(relative_position, total, config):
    config = dataclasses.replace(config, relative_position=relative_position)
    model = build(MaskedLanguageModel, config, BLM_VOCABULARY)
    assert count(model) == total
    assert count(model.embed_tokens) == 50_265 * 768
    assert count(model.embed_positions) == 514 * 768
    assert count(model.embed_norm) == 1_536
    assert count(model.lm_head) == 768**2 + 768 + 1_536 + 50_265 + 50_265 * 768
    lrpe = 96 if relative_position == "lrpe" else 0
    for layer in model.stack.layers:
        assert count(layer) == 7_085_920 - 96 + lrpe
        assert count(layer.attention) == 4 * (768**2 + 768) + lrpe
    assert len(model.stack.layers) == 12
    assert model.stack.final_norm is None


def test_order_of_layers():
    for config, each in ((LanguageModelT2Config(), 3), (EncoderT2Config(), 6)):
        model = CausalLanguageModel if each == 3 else MaskedLanguageModel
        layers = build(model, config, 10).stack.layers
        kinds = [type(layer.attention) for layer in layers]
        assert kinds == [ATTENTIONS["diag"]] * each + [ATTENTIONS["norm"]] * each
        assert all(layer.attention.head_dim == 64 for layer in layers)


def test_output_matrices():
    tied = build(CausalLanguageModel, LanguageModelT2Config(), 100)
    config = LanguageModelT2Config(untie_output_embedding=True)
    untied = build(CausalLanguageModel, config, 100)
    assert count(untied) - count(tied) == 100 * 512
    tied = build(MaskedLanguageModel, EncoderT2Config(), 100)
    assert tied.lm_head.weight is tied.embed_tokens.weight
    config = EncoderT2Config(untie_output_embedding=True)
    untied = build(MaskedLanguageModel, config, 100)
    assert count(untied) - count(tied) == 100 * 768


def test_what_is_trained():
    model = build(CausalLanguageModel, LanguageModelT2Config(), 10)
    fixed = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert fixed == {f"stack.layers.{i}.attention.lrpe.reflection" for i in range(6)}
