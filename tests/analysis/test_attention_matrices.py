"""Matrices through the identity against those made of the scores, explicitly."""

import logging

import pytest
import torch
from torch import nn

from fairseq_transnormer.analysis.attention_matrices import (
    attention_matrices,
    row_distributions,
)
from fairseq_transnormer.ops import reference
from tests.messages import assert_names, refuses
from tests.modules.building import draw_tokens, language_model, masked_language_model

LENGTH, BLOCK = 21, 8


def inputs_of_attentions(model, tokens):
    """Attention -> the x it was given."""
    inputs, hooks = {}, []
    for name, module in model.named_modules():
        if hasattr(module, "attend"):
            hook = module.register_forward_pre_hook(
                lambda module, arguments, name=name: inputs.update({name: arguments[0]})
            )
            hooks.append(hook)
    model(tokens)
    for hook in hooks:
        hook.remove()
    return inputs


def explicit_matrix(attention, x, variant):
    """Section 4's equations, with one rotation matrix a position."""
    query, key = (
        projection(x).unflatten(-1, (attention.num_heads, attention.head_dim))
        for projection in (attention.q_proj, attention.k_proj)
    )
    lrpe, position = attention.lrpe, torch.arange(x.shape[1])
    local = hasattr(attention, "block_size")
    feature_map = "identity" if local else {"t1": "elu", "t2": "1+elu"}[variant]
    query, key = reference.lrpe(
        query,
        key,
        lrpe.theta,
        lrpe.reflection,
        position % BLOCK if local else position,
        feature_map=feature_map,
    )
    scores = torch.einsum("bihd,bjhd->bhij", query, key)
    visible = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
    if attention.causal:
        visible = position[:, None] >= position
    if not local:
        return scores * visible
    visible = visible & (position[:, None] // BLOCK == position // BLOCK)
    scores = scores / attention.head_dim**0.5
    if variant == "t1":
        return scores.relu() * visible
    return scores.masked_fill(~visible, -torch.inf).softmax(-1)


@pytest.mark.parametrize("variant", ["t1", "t2"])
@pytest.mark.parametrize("build", [language_model, masked_language_model])
def test_matrices_are_those_of_the_equations(build, variant):
    with torch.no_grad():
        model, tokens = build(variant), draw_tokens(2, LENGTH)
        inputs = inputs_of_attentions(model, tokens)
        before = model(tokens)
        matrices = attention_matrices(model, lambda: model(tokens))
        assert list(matrices) == [f"stack.layers.{i}.attention" for i in range(4)]
        modules = dict(model.named_modules())
        for name, matrix in matrices.items():
            expected = explicit_matrix(modules[name], inputs[name], variant)
            torch.testing.assert_close(matrix, expected, rtol=1e-6, atol=1e-9)
        # nothing is left behind in the model
        assert torch.equal(model(tokens), before)
        assert not any("attend" in vars(module) for module in modules.values())


def test_rows_become_distributions():
    rows = torch.tensor([[1.0, -3.0], [0.0, 0.0], [0.25, 0.75]])
    expected = torch.tensor([[0.25, 0.75], [0.0, 0.0], [0.25, 0.75]]).double()
    torch.testing.assert_close(row_distributions(rows), expected)


def test_an_attention_that_is_not_linear_in_its_values_is_left_out(caplog):
    class Squares(nn.Module):
        def attend(self, query, key, value, *others):
            return value.square().flatten(2), None

        def forward(self, x):
            return self.attend(x, x, x, None, None, None, False)

    model, x = nn.ModuleList([Squares()]), torch.randn(1, 5, 2, 4)
    refused = refuses(ValueError, "attention matrix", "ModuleList")
    with caplog.at_level(logging.WARNING), refused:
        attention_matrices(model, lambda: model[0](x))
    (told,) = caplog.messages
    assert_names(told, 0, "linear", "attention matrix")


def test_attentions_of_another_signature_are_left_out(caplog):
    model = language_model("t2", attention_types="diag,long_short,flash")
    tokens = draw_tokens(2, LENGTH)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        found = attention_matrices(model, lambda: model(tokens))
    assert list(found) == ["stack.layers.0.attention"]
    assert len(caplog.messages) == 2
