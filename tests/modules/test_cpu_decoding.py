"""A model laid out for decoding computes what it computed before."""

import copy

import pytest
import torch
from torch import nn

from fairseq_transnormer.modules.cpu_decoding import lay_out_for_decoding

from .building import draw_tokens, language_model


def laid_out(model):
    changed = copy.deepcopy(model)
    lay_out_for_decoding(changed)
    before, after = model.state_dict(), changed.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
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
    model = language_model(kind, untie_output_embedding=untied).float()
    tokens = draw_tokens(2, 14)
    expected = all_logits(model, tokens)
    torch.testing.assert_close(
        all_logits(laid_out(model), tokens), expected, rtol=1e-4, atol=1e-5
    )


@torch.no_grad()
def test_products_of_one_input_are_one(monkeypatch):
    model = laid_out(language_model("t2").float())
    forward, called = nn.Linear.forward, []

    def counted(layer, x):
        called.append(layer)
        return forward(layer, x)

    monkeypatch.setattr(nn.Linear, "forward", counted)
    model(tokens := draw_tokens(2, 3))
    # that of the GLU is in its op
    assert called == [layer.attention.out_proj for layer in model.stack.layers]
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens), model(tokens))


def test_changes_after_it_are_seen():
    """Weights, dtype, hooks and gradients are those of the layers."""
    model, tokens = language_model("t2").float(), draw_tokens(2, 6)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        whole = other.state_dict()
        part = {(name := "stack.layers.0.attention.k_proj.bias"): whole[name]}
        for state, assign in (whole, False), (whole, True), (part, True):
            changed, plain = laid_out(model), copy.deepcopy(model)
            for each in (changed, plain):
                each.load_state_dict(copy.deepcopy(state), False, assign)
            torch.testing.assert_close(changed(tokens), plain(tokens))
        changed = laid_out(model)
        torch.testing.assert_close(
            changed.bfloat16()(tokens), copy.deepcopy(model).bfloat16()(tokens)
        )
        changed = laid_out(model)
        for each in (changed, model):
            attention = each.stack.layers[0].attention
            attention.q_proj.register_forward_hook(lambda layer, _, output: 2 * output)
        torch.testing.assert_close(changed(tokens), model(tokens))
    changed(tokens).sum().backward()
    assert all(p.grad is not None for p in changed.parameters() if p.requires_grad)
