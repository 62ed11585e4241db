"""A model laid out for decoding computes what it computed before."""

import copy

import pytest
import torch
from torch import nn

from fairseq_transnormer.modules import token_mixers
from fairseq_transnormer.modules.cpu_decoding import lay_out_for_decoding

from .building import PAD, draw_tokens, language_model, masked_language_model


def laid_out(model):
    changed = copy.deepcopy(model)
    lay_out_for_decoding(changed)
    return changed


def all_logits(model, tokens):
    """Of a prompt of 5 tokens, and of steps after it."""
    logits, states = model(tokens[:, :5], return_states=True)
    logits = [logits]
    for token in tokens[:, 5:].split(1, 1):
        step, states = model(token, states, return_states=True)
        logits.append(step)
    return torch.cat(logits, 1)


@pytest.mark.parametrize("kind", ["t1", "t2"])
@pytest.mark.parametrize("untied", [False, True])
@torch.no_grad()
def test_logits_stay(kind, untied):
    model = language_model(kind, untie_output_embedding=untied)
    tokens = draw_tokens(2, 14)
    expected = all_logits(model, tokens)
    torch.testing.assert_close(all_logits(laid_out(model), tokens), expected)


@pytest.mark.parametrize("name", token_mixers())
@torch.no_grad()
def test_features_of_every_encoder_stay(name):
    model = masked_language_model("t2", attention_types=name, norm_position="pre")
    tokens = draw_tokens(2, 14)
    tokens[1, 9:] = PAD
    real = tokens != PAD
    expected = model.features(tokens)[real]
    torch.testing.assert_close(laid_out(model).features(tokens)[real], expected)


@torch.no_grad()
def test_fewer_products_of_weights_by_columns(monkeypatch):
    model = language_model("t2").float()
    seen, linear = [], nn.functional.linear

    def recorded(x, weight, bias=None):
        seen.append(weight)
        return linear(x, weight, bias)

    monkeypatch.setattr(nn.functional, "linear", recorded)
    tokens, calls = draw_tokens(2, 5), []
    for each in (model, laid_out(model)):
        seen.clear()
        each(tokens)
        calls.append(len(seen))
    layers = len(model.stack.layers)
    # of a layer's 4 + 3 products, and of one for the output
    assert calls == [7 * layers + 1, 4 * layers + 1]
    assert len({id(weight) for weight in seen}) == len(seen)
    for weight in seen:
        rows, columns = weight.shape
        by_columns = weight.t().is_contiguous() and not weight.is_contiguous()
        assert by_columns == (rows >= columns)


@torch.no_grad()
def test_what_wraps_a_layer_stays():
    model = language_model("t2")
    calls = []
    for layer in model.stack.layers:
        for name in ("attention.k_proj", "feed_forward.gate_proj"):
            layer.get_submodule(name).register_forward_hook(
                lambda *_: calls.append(1) and None
            )
    changed = laid_out(model)
    changed(draw_tokens(2, 5))
    assert len(calls) == 2 * len(model.stack.layers)


@torch.no_grad()
def test_half_precision_stays_by_rows():
    model = laid_out(language_model("t2").bfloat16())
    weights = [p for p in model.parameters() if p.dim() == 2]
    assert weights and all(weight.is_contiguous() for weight in weights)
