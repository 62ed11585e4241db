"""What ``cuda_graphs`` does around the graphs; tests/gpu has the graphs themselves."""

import contextlib
import copy
import pickle
from types import SimpleNamespace

import pytest
import torch

from fairseq_transnormer.modules import LanguageModelT2Config, cuda_graphs
from fairseq_transnormer.modules.layers import LayerStack
from tests.messages import refuses

SMALL = {"embed_dim": 8, "num_heads": 1, "ffn_dim": 8, "attention_types": "norm"}


def build(**changes):
    torch.manual_seed(0)
    config = LanguageModelT2Config(**SMALL | {"dropout": 0.0} | changes)
    return LayerStack(config, causal=True).train()


class Static(torch.autograd.Function):
    """One step in memory that the next step writes over, as a graph's."""

    memory = output = None

    @staticmethod
    def forward(ctx, module, x, *weights):
        ctx.module, ctx.x = module, x.detach().requires_grad_()
        with torch.enable_grad():
            ctx.y = module.forward(ctx.x)
        if Static.output is None or Static.output.shape != ctx.y.shape:
            Static.output = ctx.y.detach().clone()
        return Static.output.copy_(ctx.y.detach()).detach()

    @staticmethod
    def backward(ctx, grad):
        weights = list(ctx.module.parameters())
        inputs = [x for x in (ctx.x, *weights) if x.requires_grad]
        found = torch.autograd.grad(ctx.y, inputs, grad)
        if Static.memory is None or Static.memory[0].shape != ctx.x.shape:
            Static.memory = found
        for place, each in zip(Static.memory, found, strict=True):
            place.copy_(each)
        places = iter(Static.memory)
        own = (next(places).detach() if x.requires_grad else None for x in weights)
        return None, next(places).detach(), *own


@pytest.fixture
def captured(monkeypatch):
    """Modules that were "captured"."""
    found = []

    def capture(module, samples, pool, allow_unused_input):
        found.append(module)
        return lambda x: Static.apply(module, x, *module.parameters())

    monkeypatch.setattr(Static, "memory", None)
    monkeypatch.setattr(Static, "output", None)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.random, "fork_rng", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(
        cuda_graphs.GraphedLayers, "can_take", lambda _, x: x.requires_grad
    )
    return found


def draw(length=5):
    return torch.randn(2, length, 8)


def step(stack, x):
    x = x.clone().requires_grad_()
    stack(x)[0].pow(3).sum().backward()
    return x.grad


def test_no_device_no_graph():
    """On a CPU the option changes nothing."""
    stack, plain = build(cuda_graphs=True), build()
    for _ in range(3):
        assert step(stack, x := draw()).equal(step(plain, x))
    assert not stack.graphed.graphs


def test_gradients_are_nobody_elses_memory(captured):
    stack, plain = build(cuda_graphs=True), build()
    batches = [draw() for _ in range(5)]
    for x in batches[:2]:
        step(stack, x)
    stack.zero_grad()
    own, expected = ([step(each, x) for x in batches] for each in (stack, plain))
    assert len(captured) == 1
    torch.testing.assert_close(own, expected)
    for one, other in zip(stack.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_shape_is_captured_when_it_comes_again(captured):
    stack = build(cuda_graphs=True)
    for length in (5, 3, 5, 5, 4):
        step(stack, draw(length))
    assert len(captured) == 1
    for length in range(10, 20):
        for _ in range(2):
            step(stack, draw(length))
    assert len(captured) == 1 + cuda_graphs.MOST_SHAPES - 3


@pytest.mark.parametrize("change", ["moved", "frozen"])
def test_other_weights_have_other_graphs(captured, change):
    stack = build(cuda_graphs=True)
    for _ in range(3):
        step(stack, draw())
    if change == "moved":
        stack.double().float()
    else:
        next(stack.parameters()).requires_grad_(False)
    step(stack, draw())
    assert len(captured) == 1
    if change == "moved":
        step(stack, draw())
        assert len(captured) == 2


def test_results_are_nobody_elses_memory(captured):
    stack, plain = build(cuda_graphs=True), build()
    batches = [draw() for _ in range(4)]
    found = [stack(x.requires_grad_())[0] for x in batches]
    torch.testing.assert_close(found, [plain(x)[0] for x in batches])


def test_what_a_graph_has_not_is_done_without(captured):
    stack = build(cuda_graphs=True)
    pads = torch.zeros(2, 5, dtype=torch.bool)
    for _ in range(3):
        stack(draw().requires_grad_(), pads)
        stack(draw().requires_grad_(), hidden_states=(kept := []))
        assert len(kept) == 2
        stack(draw().requires_grad_(), return_states=True)
    assert not captured
    for _ in range(2):
        step(stack, draw())
    stack.layers[0].eval()
    step(stack, draw())
    assert len(captured) == 1 and not any(stack.graphed.graphs.values())


def test_hooks_and_autocast_go_without_graphs():
    graphed = build(cuda_graphs=True).graphed
    x = SimpleNamespace(is_cuda=True, requires_grad=True, device=torch.device("cpu"))
    layer = graphed.stack.layers[0]
    assert graphed.can_take(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not graphed.can_take(x)
    with torch.no_grad():
        assert not graphed.can_take(x)
    for register in ("forward_hook", "forward_pre_hook", "full_backward_pre_hook"):
        hook = getattr(layer, f"register_{register}")(lambda *_: None)
        assert not graphed.can_take(x)
        hook.remove()
    assert graphed.can_take(x)


@pytest.mark.parametrize("other", ["checkpoint_activations", "long_short_memory"])
def test_what_no_graph_can_hold_is_refused(other):
    with refuses(ValueError, "cuda_graphs", other, "one of them"):
        build(cuda_graphs=True, attention_types="long_short", **{other: True})


def test_passes_out_of_order_are_refused(captured):
    stack = build(cuda_graphs=True)
    for _ in range(2):
        step(stack, draw())
    first, second = (stack(draw().requires_grad_())[0].sum() for _ in range(2))
    second.backward()
    with pytest.raises(RuntimeError, match="cuda_graphs"):
        first.backward()


def test_copies_capture_their_own(captured):
    stack = build(cuda_graphs=True)
    for _ in range(2):
        step(stack, draw())
    for twin in (copy.deepcopy(stack), pickle.loads(pickle.dumps(stack))):
        assert twin.graphed.stack is twin
        assert not twin.graphed.graphs
