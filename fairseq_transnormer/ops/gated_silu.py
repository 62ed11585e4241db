"""The gate of the GLU: silu(a) * b (section 4.3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import reference
from .backend import select


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
    return select(_IMPLEMENTATIONS, backend, (gate, value))(gate, value)


def gated_silu_gradients(
    gate: Tensor, value: Tensor, grad: Tensor, *, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """Gradients of gate and value for the gradient ``grad`` of ``gated_silu``."""
    return select(_GRADIENTS, backend, (gate, value))(gate, value, grad)


def _torch_gated_silu(gate: Tensor, value: Tensor) -> Tensor:
    return F.silu(gate) * value


def _triton_gated_silu(*arguments, **keywords):
    # imported when it is first called: Triton need not be installed
    from .triton_ops.gated_silu import gated_silu

    return gated_silu(*arguments, **keywords)


def _torch_gradients(gate: Tensor, value: Tensor, grad: Tensor):
    grad_gate = torch.ops.aten.silu_backward(grad * value, gate)
    return grad_gate, F.silu(gate).mul_(grad)


def _triton_gradients(*arguments):
    from .triton_ops.gated_silu import gated_silu_gradients

    return gated_silu_gradients(*arguments)


_IMPLEMENTATIONS = {
    "torch": _torch_gated_silu,
    "reference": reference.gated_silu,
    "triton": _triton_gated_silu,
}
_GRADIENTS = {"torch": _torch_gradients, "triton": _triton_gradients}
