"""What hooks or replaces a layer is called, also where an op could compute several."""

import copy

import pytest
import torch
from torch import nn

from tests.messages import refuses

from .building import draw_tokens, language_model, masked_language_model

PROJECTIONS = ("q_proj", "k_proj", "v_proj")
MIXER = ("gate_proj", "value_proj", "out_proj")
LAYERS = [
    *(f"attention.{name}" for name in PROJECTIONS),
    *(f"feed_forward.{name}" for name in MIXER),
    *("attention.lrpe", "attention_norm", "feed_forward_norm"),
]


class Wrapped(nn.Module):
    """As LoRA and quantisation wrap a layer."""

    def __init__(self, layer, calls):
        super().__init__()
        self.layer, self.calls = layer, calls

    def forward(self, *arguments):
        self.calls.append(1)
        return self.layer(*arguments)


@pytest.fixture
def model():
    """In training, without dropout."""
    return language_model("t2", attention_types="norm").train()


def with_hook(parent, name, calls):
    getattr(parent, name).register_forward_hook(lambda *arguments: calls.append(1))


def replaced(parent, name, calls):
    setattr(parent, name, Wrapped(getattr(parent, name), calls))


def with_another_forward(parent, name, calls):
    """As accelerate and some adapters set it, on the instance."""
    layer = getattr(parent, name)
    forward = layer.forward

    def counted(*arguments, **keywords):
        calls.append(1)
        return forward(*arguments, **keywords)

    layer.forward = counted


@pytest.mark.parametrize("change", [with_hook, replaced, with_another_forward])
def test_what_hooks_or_replaces_a_layer_is_called(model, change):
    tokens = draw_tokens(2, 9)
    expected = model(tokens)
    for name in LAYERS:
        changed, calls = copy.deepcopy(model), []
        parent, _, last = name.rpartition(".")
        change(changed.stack.layers[0].get_submodule(parent), last, calls)
        torch.testing.assert_close(changed(tokens), expected)
        assert calls == [1], name


def output_layer():
    """A model whose output layer is a module of its own, and that module's name."""
    model = language_model("t2", attention_types="norm", untie_output_embedding=True)
    return model, "output_projection"


def head():
    return masked_language_model("t2", attention_types="norm").eval(), "lm_head"


@pytest.mark.parametrize("build", [output_layer, head])
@pytest.mark.parametrize("with_targets", [False, True])
def test_what_wraps_the_output_layer_is_called(build, with_targets):
    """Logits and their loss are the wrapped layer's, and so are its gradients."""
    model, name = build()
    tokens = draw_tokens(2, 9)

    def outputs():
        if not with_targets:
            return (model(tokens),)
        targets = tokens.clone()
        targets[:, 3] = model.padding_idx
        return model(tokens, targets=targets)

    def gradients(total):
        wanted = [p for p in model.parameters() if p.requires_grad]
        return torch.autograd.grad(total.sum(), wanted)

    expected = outputs()
    expected_gradients = gradients(expected[0])
    calls = []
    wrapped = Wrapped(getattr(model, name), calls)
    setattr(model, name, wrapped)
    torch.testing.assert_close(outputs(), expected)
    torch.testing.assert_close(gradients(outputs()[0]), expected_gradients)
    assert calls
    calls.clear()
    setattr(model, name, wrapped.layer)
    wrapped.layer.register_forward_hook(lambda *arguments: calls.append(1))
    torch.testing.assert_close(outputs(), expected)
    assert calls == [1]


@pytest.mark.parametrize("untie", [False, True])
def test_a_layer_without_a_bias_makes_no_logits_for_its_loss(untie, monkeypatch):
    model = language_model(
        "t2", attention_types="norm", untie_output_embedding=untie, output_bias=False
    )
    monkeypatch.setattr(model, "output", None)
    monkeypatch.setattr("torch.nn.functional.cross_entropy", None)
    tokens = draw_tokens(2, 9)
    total, losses = model(tokens, targets=tokens)
    assert total.isfinite() and losses.shape == tokens.shape


def test_a_tied_weight_that_is_elsewhere_is_refused():
    """As accelerate leaves it between two calls of its module: on no device."""
    model = language_model("t2", attention_types="norm")
    features, tokens = model.features(draw_tokens(2, 9))[0], draw_tokens(2, 9)
    model.embed_tokens.to("meta")
    for call in (
        lambda: model.output(features),
        lambda: model.output_loss(features, tokens),
    ):
        with refuses(ValueError, "embed_tokens.weight", "meta", "cpu"):
            call()


def test_a_hook_of_all_modules_is_called(model):
    names, tokens = [], draw_tokens(2, 9)
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, *others: names.append(type(module).__name__)
    )
    try:
        model(tokens)
    finally:
        handle.remove()
    assert names.count("Linear") >= 7 and "LRPE" in names
