"""The GLU (section 4.3) as one op: two products of matrices forward, four backward.

Letters: C width of the input, I width inside, O of the output; P is I up to the next
multiple of 8.
"""

from __future__ import annotations

from operator import index

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import Kernels, autocast_disabled, product_dtype, select
from .derivatives import once_differentiable
from .gated_silu import gated_linear
from .packed_weights import (
    packed_rows,
    padded_columns,
    zeros_between,
)


def gated_linear_unit(
    x: Tensor,
    gate_weight: Tensor,
    gate_bias: Tensor,
    value_weight: Tensor,
    value_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    *,
    backend: str = "auto",
) -> Tensor:
    """W3 (silu(W1 x + b1) * (W2 x + b2)) + b3; under autocast in its dtype.

    Triton's form multiplies by both weights at once. It pads a width that is no
    multiple of 8 with columns of zeros, so that rows are whole pieces of 16 bytes. Both
    need a copy of the weights for each call.

    Args:
        x: (..., C), any floating-point dtype.
        gate_weight, value_weight: (I, C), in the dtype of x but for autocast.
        gate_bias, value_bias: (I,).
        out_weight: (O, I).
        out_bias: (O,).
        backend: "auto", "torch", "triton" or "reference".

    Returns:
        (..., O).

    Raises:
        ValueError: see ``gated_silu``.
    """

    def kernels() -> Kernels:
        # the gate's; products are torch's
        width = index(len(gate_weight))
        return Kernels("gated_linear_unit", lambda: {"width": width}, products=False)

    sample = x.new_empty(0, dtype=product_dtype(x))
    implementation = select(_IMPLEMENTATIONS, backend, (sample,), kernels)
    parameters = (gate_weight, gate_bias, value_weight, value_bias)
    return implementation(x, *parameters, out_weight, out_bias)


def _by_parts(backend: str):
    def by_parts(x, gate_weight, gate_bias, value_weight, value_bias, *out):
        gate = F.linear(x, gate_weight, gate_bias)
        value = F.linear(x, value_weight, value_bias)
        return gated_linear(gate, value, *out, backend=backend)

    return by_parts


def _triton_gated_linear_unit(x: Tensor, *parameters: Tensor) -> Tensor:
    return _GatedLinearUnit.apply(x.to(product_dtype(x)), *parameters)


class _GatedLinearUnit(torch.autograd.Function):
    """Saves x, gate and value; the packed weights, which its products need again."""

    @staticmethod
    def forward(
        ctx,
        x,
        gate_weight,
        gate_bias,
        value_weight,
        value_bias,
        out_weight,
        out_bias,
    ):
        from .kernels.gated_silu import gate_of_halves

        with autocast_disabled(x):
            weights, biases = (gate_weight, value_weight), (gate_bias, value_bias)
            zeros = zeros_between(gate_weight, max(x.shape[-1], len(out_weight)))
            weight, bias = packed_rows(weights, biases, zeros, x.dtype)
            closing = padded_columns(out_weight, zeros, x.dtype)
            rows = x.reshape(x.shape[:-1].numel(), x.shape[-1])
            both = F.linear(rows, weight, bias)
            output = F.linear(gate_of_halves(both), closing, out_bias.to(x.dtype))
        ctx.save_for_backward(rows, both, weight, closing)
        ctx.shape, ctx.width, ctx.dtype = x.shape, len(gate_bias), gate_weight.dtype
        return output.view(*x.shape[:-1], len(out_weight))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        from .kernels.gated_silu import gradient_of_halves

        rows, both, weight, closing = ctx.saved_tensors
        width, needed = ctx.width, ctx.needs_input_grad
        grads = [None] * 7
        with autocast_disabled(grad):
            grad = grad.reshape(-1, grad.shape[-1])
            product = grad @ closing
            # the gradient of the product becomes the product
            grad_both, grad_bias = gradient_of_halves(both, product)
            if needed[5]:
                grads[5] = (grad.t() @ product)[:, :width]
            if needed[6]:
                grads[6] = grad.sum(0)
            del product
            if needed[0]:
                grads[0] = (grad_both @ weight).view(ctx.shape)
            values = slice(len(grad_bias) // 2, len(grad_bias) // 2 + width)
            if needed[1] or needed[3]:
                grad_weight = grad_both.t() @ rows
                grads[1], grads[3] = grad_weight[:width], grad_weight[values]
            grads[2], grads[4] = grad_bias[:width], grad_bias[values]
        return grads[0], *(x if x is None else x.to(ctx.dtype) for x in grads[1:])


_IMPLEMENTATIONS = {
    "torch": _by_parts("torch"),
    "reference": _by_parts("reference"),
    "triton": _triton_gated_linear_unit,
}
