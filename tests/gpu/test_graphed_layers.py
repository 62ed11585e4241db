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
