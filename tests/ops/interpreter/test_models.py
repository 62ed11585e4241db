"""Whole models in training with Triton's ops, beside the same ones with torch's."""

import pytest
import torch

from fairseq_transnormer.modules import (
    CausalLanguageModel,
    EncoderT1Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
)

from ..drawing import relative_error

SMALL = {
    **dict(attention_types="diag,norm", embed_dim=64, num_heads=2, ffn_dim=45),
    **dict(block_size=16, dropout=0.0, attention_dropout=0.0),
}


def build(kind, backend, **changes):
    """Models of different backends have the same weights."""
    torch.manual_seed(0)
    config = {
        CausalLanguageModel: LanguageModelT2Config,
        MaskedLanguageModel: EncoderT1Config,
    }[kind]
    return kind(config(**(SMALL | changes), backend=backend), 50, 1).train()


def step(model, tokens):
    """Loss and gradients by name."""
    scores = model(tokens).flatten(0, -2).float()
    loss = torch.nn.functional.cross_entropy(scores, tokens.flatten(), ignore_index=1)
    loss.backward()
    named = model.named_parameters()
    return loss, {name: p.grad for name, p in named if p.grad is not None}


def assert_same(one, other, tolerance):
    assert relative_error(one[0], other[0]) < tolerance
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        assert relative_error(gradient, other[1][name]) < 100 * tolerance, name


@pytest.mark.parametrize("kind", [CausalLanguageModel, MaskedLanguageModel])
def test_loss_and_gradients(kind):
    tokens = torch.randint(2, 50, (2, 20))
    tokens[1, 15:] = 1
    one, other = (step(build(kind, name), tokens) for name in ("triton", "torch"))
    assert_same(one, other, 1e-6)


def test_dropout_is_the_same_with_recomputed_layers():
    tokens, results = torch.randint(2, 50, (2, 20)), []
    for recompute in (False, True):
        options = {"checkpoint_activations": recompute, "dropout": 0.3}
        model = build(CausalLanguageModel, "triton", **options)
        torch.manual_seed(4)
        results.append(step(model, tokens))
    assert_same(*results, 1e-6)


def test_evaluation_drops_nothing():
    tokens = torch.randint(2, 50, (2, 20))
    one, other = (
        build(CausalLanguageModel, name, dropout=0.3).eval()(tokens)
        for name in ("triton", "torch")
    )
    assert relative_error(one, other) < 1e-5


def test_a_compiled_layer_trains_as_it_does_without():
    """One graph, with the packed products in it and torch's residual connections."""
    torch._dynamo.reset()
    layer = build(CausalLanguageModel, "triton").stack.layers[1]
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x, results = torch.randn(2, 20, 64), []
    for function in (compiled, layer):
        layer.zero_grad()
        output, _ = function(x)
        output.square().sum().backward()
        named = layer.named_parameters()
        grads = {name: p.grad.clone() for name, p in named if p.grad is not None}
        results.append((output, grads))
    assert_same(*results, 1e-6)
