"""The gate of the GLU, silu(a) * b, and the projection after it (section 4.3).

Letters: I width of the gate, O of the output.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import reference
from .backend import Kernels, needs_gradient, resolve_backend, select
from .derivatives import once_differentiable


def gated_silu(gate: Tensor, value: Tensor, *, backend: str = "auto") -> Tensor:
    """silu(gate) * value, elementwise; silu(a) = a * sigmoid(a), the paper's Swish.

    Args:
        gate: any shape and floating-point dtype.
        value: the same shape and dtype.
        backend: "auto", "torch", "triton" or "reference".

    Raises:
        ValueError: gate and value differ in shape or dtype; the backend's name is not
            known, or backend="triton" where it cannot run.
    """
    if gate.shape != value.shape or gate.dtype != value.dtype:
        raise ValueError(
            f"value is {value.dtype} {tuple(value.shape)} beside gate {gate.dtype} "
            f"{tuple(gate.shape)}; they must agree"
        )
    return select(_IMPLEMENTATIONS, backend, (gate, value), _kernels)(gate, value)


def gradients_and_product(
    gate: Tensor, value: Tensor, grad: Tensor, *, backend: str = "auto"
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of gate and value, and ``gated_silu(gate, value)`` beside them.

    Args:
        gate, value: see ``gated_silu``.
        grad: gradient of ``gated_silu``; its memory is used for one of the three.
        backend: "auto", "torch", "triton" or "reference".
    """
    return select(_GRADIENTS, backend, (gate, value), _kernels)(gate, value, grad)


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
    plain = resolve_backend(backend) == "reference"
    if plain or not needs_gradient(gate, value, weight, bias):
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
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            # under autocast the weight has another dtype than the gradient
            grad_product = (grad @ weight.to(grad.dtype)).to(gate.dtype)
            *grads[:2], product = gradients_and_product(
                gate, value, grad_product, backend=ctx.backend
            )
        elif ctx.needs_input_grad[2]:
            product = gated_silu(gate, value, backend=ctx.backend)
        if ctx.needs_input_grad[2]:
            product = product.reshape(-1, product.shape[-1]).to(grad.dtype)
            grads[2] = (rows.t() @ product).to(weight.dtype)
        if ctx.needs_input_grad[3]:
            grads[3] = rows.sum(0).to(ctx.bias_dtype)
        return tuple(grads)


def _torch_gated_silu(gate: Tensor, value: Tensor) -> Tensor:
    return F.silu(gate) * value


def _triton_gated_silu(*arguments, **keywords):
    # imported when it is first called: Triton need not be installed
    from .kernels.gated_silu import gated_silu

    return gated_silu(*arguments, **keywords)


def _torch_gradients(gate: Tensor, value: Tensor, grad: Tensor):
    grad_gate = torch.ops.aten.silu_backward(grad * value, gate)
    opened = F.silu(gate)
    return grad_gate, grad.mul_(opened), opened.mul_(value)


def _triton_gradients(*arguments):
    from .kernels.gated_silu import gradients_and_product

    return gradients_and_product(*arguments)


_IMPLEMENTATIONS = {
    "torch": _torch_gated_silu,
    "reference": reference.gated_silu,
    "triton": _triton_gated_silu,
}
_GRADIENTS = {
    "torch": _torch_gradients,
    "reference": reference.gradients_and_product,
    "triton": _triton_gradients,
}


def _kernels() -> Kernels:
    # the gradients are asked for in a backward pass, after the forward pass has had all
    # of them tried
    return Kernels("gated_silu", products=False)
