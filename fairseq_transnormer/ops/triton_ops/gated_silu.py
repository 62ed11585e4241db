"""The gate's kernels and their launch; ``ops.gated_silu`` says what is computed.

Elementwise, in the order of memory: the tensors have to agree in their strides only.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launching import differentiable, in_place, launch

BLOCK = 2048
NUM_WARPS = 4


def gated_silu(gate: Tensor, value: Tensor) -> Tensor:
    """``ops.gated_silu``."""
    return _gate(gate, value)[0]


def gated_silu_gradients(
    gate: Tensor, value: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of gate and value."""
    return _gradients_alone(gate, value, grad)


def _forward(gate: Tensor, value: Tensor) -> tuple[Tensor]:
    gate = _dense(gate)
    output = torch.empty_like(gate)
    _launch(gate_kernel, gate, _in_layout_of(gate, value), output)
    return (output,)


def _backward(gate: Tensor, value: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of both; the sigmoid is computed again."""
    gate = _dense(gate)
    grads = torch.empty_like(gate), torch.empty_like(gate)
    others = (_in_layout_of(gate, x) for x in (value, grad))
    _launch(gate_backward_kernel, gate, *others, *grads)
    return grads


def _dense(x: Tensor) -> Tensor:
    """x, copied unless it fills its memory without gaps, in any order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return x.contiguous()
            expected *= size
    return x


def _in_layout_of(gate: Tensor, x: Tensor) -> Tensor:
    if x.stride() == gate.stride():
        return x
    return torch.empty_like(gate).copy_(x)


def _launch(kernel, *tensors):
    count = tensors[0].numel()
    launch(
        kernel,
        (triton.cdiv(count, BLOCK),),
        *tensors,
        count,
        BLOCK=BLOCK,
        num_warps=NUM_WARPS,
    )


@triton.jit(do_not_specialize=["count"])
def gate_kernel(gate, value, output, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    a = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(value + at, mask=mask, other=0.0).to(tl.float32)
    y = a * tl.sigmoid(a) * b
    tl.store(output + at, y.to(output.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count"])
def gate_backward_kernel(
    gate, value, grad, grad_gate, grad_value, count, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    a = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(value + at, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
    s = tl.sigmoid(a)
    # silu'(a) = s (1 + a (1 - s))
    da = g * b * s * (1.0 + a * (1.0 - s))
    db = g * a * s
    tl.store(grad_gate + at, da.to(grad_gate.dtype.element_ty), mask=mask)
    tl.store(grad_value + at, db.to(grad_value.dtype.element_ty), mask=mask)


def _save(ctx, arguments, outputs):
    ctx.save_for_backward(*arguments)


def _gradients(ctx, backward, grad):
    return backward(*ctx.saved_tensors, grad)


_gate = differentiable(
    "gated_silu",
    _forward,
    "(Tensor gate, Tensor value) -> Tensor",
    _backward,
    "(Tensor gate, Tensor value, Tensor grad) -> (Tensor, Tensor)",
    save=_save,
    gradients=_gradients,
    results=1,
)
_gradients_alone = in_place(
    "gated_silu_gradients",
    _backward,
    "(Tensor gate, Tensor value, Tensor grad) -> (Tensor, Tensor)",
    mutates=(),
)
