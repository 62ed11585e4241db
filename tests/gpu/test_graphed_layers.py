"""``cuda_graphs``: layers whose steps are replayed learn as they do without."""

import copy

import pytest
import torch

from fairseq_transnormer.modules import LanguageModelT1Config, LanguageModelT2Config
from fairseq_transnormer.modules.layers import LayerStack
from fairseq_transnormer.ops.backend import like_captured

CONFIGS = {"T1": LanguageModelT1Config, "T2": LanguageModelT2Config}


def build(variant="T2", dropout=0.1, **changes):
    torch.manual_seed(0)
    config = CONFIGS[variant](
        embed_dim=128,
        num_heads=2,
        ffn_dim=96,
        attention_types="diag,norm",
        dropout=dropout,
        cuda_graphs=True,
        **changes,
    )
    return LayerStack(config, causal=True).to("cuda", torch.bfloat16).train()


def draw(rows=4, length=100):
    return torch.randn(rows, length, 128, device="cuda", dtype=torch.bfloat16)


def gradients(call, stack, x, seed=3):
    """The output, and the gradients of the input and of all weights that are used."""
    torch.manual_seed(seed)
    stack.zero_grad()
    x = x.clone().requires_grad_()
    y, _ = call(x)
    y.float().pow(3).sum().backward()
    grads = [p.grad for p in stack.parameters() if p.grad is not None]
    return [y.detach(), x.grad, *grads]


def eager(stack, x):
    with like_captured():
        return stack.run(x)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("variant", ["T1", "T2"])
def test_steps_are_those_without_graphs(variant, dropout):
    """Bit for bit: of all steps, of two shapes in turn, while the weights change."""
    stack = build(variant, dropout)
    twin = copy.deepcopy(stack)
    for step in range(7):
        x = draw(length=100 if step % 3 else 64)
        ours = gradients(stack, stack, x, seed=step)
        theirs = gradients(lambda x: eager(twin, x), twin, x, seed=step)
        for found, expected in zip(ours, theirs, strict=True):
            assert torch.equal(found, expected)
        with torch.no_grad():
            for p in (*stack.parameters(), *twin.parameters()):
                if p.grad is not None:
                    p -= 1e-3 * p.grad
    assert sum(graph is not None for graph in stack.graphed.graphs.values()) == 2


def test_gradients_are_summed_over_batches():
    stack = build(dropout=0.0)
    x, other = draw(), draw()
    for _ in range(2):
        single = [gradients(stack, stack, each)[2:] for each in (x, other)]
        single = [[grad.clone() for grad in grads] for grads in single]
    stack.zero_grad()
    for each in (x, other):
        stack(each.clone().requires_grad_())[0].float().pow(3).sum().backward()
    sums = [p.grad for p in stack.parameters() if p.grad is not None]
    for found, one, two in zip(sums, *single, strict=True):
        torch.testing.assert_close(found, one + two)


def test_two_forward_passes_before_a_backward_pass_are_refused():
    stack = build()
    for _ in range(2):
        gradients(stack, stack, draw())
    first, second = (stack(draw().requires_grad_())[0].sum() for _ in range(2))
    second.backward()
    with pytest.raises(RuntimeError, match="cuda_graphs"):
        first.backward()


def test_weights_that_moved_are_captured_anew():
    stack = build(dropout=0.0)
    for _ in range(2):
        gradients(stack, stack, x := draw())
    stack.float().to(torch.bfloat16)
    with torch.no_grad():
        for p in stack.parameters():
            p.mul_(1.5)
    expected = gradients(lambda x: eager(stack, x), stack, x)
    for _ in range(3):
        for found, same in zip(gradients(stack, stack, x), expected, strict=True):
            assert torch.equal(found, same)


def test_evaluation_has_no_graph():
    stack = build().eval()
    with torch.no_grad():
        stack(draw())
    assert not stack.graphed.graphs
