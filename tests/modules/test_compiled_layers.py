"""Models whose layers, or all of them, go through torch.compile."""

import functools

import pytest
import torch
from torch._dynamo.utils import counters

from fairseq_transnormer.modules import (
    CausalLanguageModel,
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelT1Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
    layers,
)

SMALL = {"embed_dim": 32, "num_heads": 2, "ffn_dim": 50, "dropout": 0.0}
SMALL |= {"attention_dropout": 0.0, "attention_types": "diag,norm"}
PAD = 1
MODELS = {
    "ALM T1": (CausalLanguageModel, LanguageModelT1Config),
    "ALM T2": (CausalLanguageModel, LanguageModelT2Config),
    "BLM T1": (MaskedLanguageModel, EncoderT1Config),
    "BLM T2": (MaskedLanguageModel, EncoderT2Config),
}


def build(name, **changes):
    torch.manual_seed(0)
    kind, config = MODELS[name]
    return kind(config(**SMALL | changes), 40)


def draw(length, padded):
    tokens = torch.randint(4, 40, (3, length))
    if padded:
        tokens[0, -3:] = tokens[2, :2] = PAD
    return tokens


@pytest.fixture
def without_generated_code(monkeypatch):
    """All of torch.compile but the compiler; how often the layers were compiled."""
    torch._dynamo.reset()
    counters.clear()
    layers.compiled_call.cache_clear()
    compiled = functools.partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", compiled)
    yield lambda: counters["stats"]["unique_graphs"]
    layers.compiled_call.cache_clear()
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ALM T2", {"attention_types": "norm*3"}),
        pytest.param("BLM T1", {}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_compiled_layers_train_the_same(name, changes, without_generated_code):
    """Layers of a kind share their code, which is made anew for a second length."""
    compiled = build(name, compile_layers=True, **changes).train()
    eager = build(name, **changes).train()
    made = []
    for length in (12, 17):
        tokens, targets = draw(length, padded=True), draw(length, padded=True)
        for model in (compiled, eager):
            model.zero_grad()
            model(tokens, targets=targets)[0].backward()
        for one, other in zip(compiled.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
        made.append(without_generated_code())
    # a layer's code may know of its input that it needs no gradient
    assert 0 < made[0] <= 3 and made[1] <= 2 * made[0]


def test_each_kind_of_layer_has_a_limit_of_its_own(without_generated_code):
    """torch.compile gives up on what it has compiled eight times."""
    for name, layer in {"diag": torch.nn.ReLU(), "norm": torch.nn.Tanh()}.items():
        call = layers.compiled_call(name)
        for dimensions in range(1, 7):
            call(layer, torch.randn([2] * dimensions))
    assert without_generated_code() == 12


def test_evaluation_compiles_nothing(without_generated_code):
    model = build("ALM T2", compile_layers=True).eval()
    with torch.no_grad():
        model(draw(9, padded=False))
    assert not without_generated_code()


@pytest.mark.parametrize(
    "name", ["ALM T2", pytest.param("BLM T1", marks=pytest.mark.slow)]
)
def test_a_whole_model_is_one_graph(name):
    model, tokens = build(name).eval(), draw(11, padded=True)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    real = tokens != PAD
    expected = model(tokens)[real]
    torch.testing.assert_close(compiled(tokens)[real], expected, rtol=1e-5, atol=1e-5)


def test_models_with_and_then_without_pads():
    torch._dynamo.reset()
    model = build("BLM T1").eval()
    compiled = torch.compile(model, backend="eager")
    for padded in (False, True):
        tokens = draw(20, padded)
        torch.testing.assert_close(compiled(tokens), model(tokens))


def test_an_exported_program_of_several_chunks():
    model, tokens = build("ALM T2").eval(), draw(70, padded=True)
    with torch.no_grad():
        exported = torch.export.export(model, (tokens,)).module()
        found, expected = (each(tokens)[tokens != PAD] for each in (exported, model))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
