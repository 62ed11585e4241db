"""What follows an op may give no gradient back: then its inputs get none, or zeros."""

import pytest
import torch

from fairseq_transnormer import ops


class NoGradient(torch.autograd.Function):
    """The sum; autograd hears of no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        return None


def encode(query, key):
    theta, reflection = torch.rand(16), torch.ones(32) / 32**0.5
    return ops.lrpe(query, key, theta, reflection, torch.arange(5), backend="triton")[0]


OPS = {
    "rms_norm": lambda x, _: ops.rms_norm(x, backend="triton"),
    "gated_silu": lambda x, y: ops.gated_silu(x, y, backend="triton"),
    "gated_linear": lambda x, y: ops.gated_linear(
        x, y, torch.eye(32), backend="triton"
    ),
    "lrpe": encode,
    "block": lambda x, y: ops.block_attention(
        x, y, y, block_size=16, causal=True, backend="triton"
    ),
    "causal": lambda x, y: ops.linear_attention(x, y, y, causal=True, backend="triton"),
    "bidirectional": lambda x, y: ops.linear_attention(
        x, y, y, causal=False, backend="triton"
    ),
}


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_no_gradient_arrives(op):
    leaves = [torch.randn(2, 5, 2, 32, requires_grad=True) for _ in "xy"]
    NoGradient.apply(op(*leaves)).backward()
    assert all(x.grad is None or (x.grad == 0).all() for x in leaves)
