"""The GLU after its two projections: W (silu(a) * b) + c (section 4.3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .gated_silu import gated_silu, gated_silu_gradients


def gated_linear(
    gate: Tensor,
    value: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    backend: str = "auto",
) -> Tensor:
    """``F.linear(gated_silu(gate, value), weight, bias)`` in less memory.

    The product, a layer's widest tensor, is made again in the backward pass instead of
    being kept for it.

    Args:
        gate: (..., I), any floating-point dtype.
        value: the same shape and dtype.
        weight: (O, I).
        bias: (O,) or None.
        backend: of the product, "auto", "torch", "triton" or "reference".

    Returns:
        (..., O), in the dtype of gate, or autocast's.

    Raises:
        ValueError: see ``gated_silu``.
    """
    if backend == "reference":
        return F.linear(gated_silu(gate, value, backend=backend), weight, bias)
    return _GatedLinear.apply(gate, value, weight, bias, backend)


class _GatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, value, weight, bias, backend):
        ctx.save_for_backward(gate, value, weight)
        ctx.backend, ctx.bias_dtype = backend, None if bias is None else bias.dtype
        return F.linear(gated_silu(gate, value, backend=backend), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        gate, value, weight = ctx.saved_tensors
        grads, rows = [None] * 5, grad.reshape(-1, grad.shape[-1])
        # the product first: it is gone before the two widest gradients are made
        if ctx.needs_input_grad[2]:
            product = gated_silu(gate, value, backend=ctx.backend)
            product = product.reshape(-1, product.shape[-1]).to(grad.dtype)
            grads[2] = (rows.t() @ product).to(weight.dtype)
            del product
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            # under autocast the weight has another dtype than the gradient
            grad_product = (grad @ weight.to(grad.dtype)).to(gate.dtype)
            grads[:2] = gated_silu_gradients(
                gate, value, grad_product, backend=ctx.backend
            )
        if ctx.needs_input_grad[3]:
            grads[3] = rows.sum(0).to(ctx.bias_dtype)
        return tuple(grads)
