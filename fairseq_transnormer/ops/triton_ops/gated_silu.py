"""The gate's kernels and their launch; ``ops.gated_silu`` says what is computed.

Elementwise, in the order of memory: the tensors have to agree in their strides only.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 2048
NUM_WARPS = 4


def gated_silu(gate: Tensor, value: Tensor) -> Tensor:
    """``ops.gated_silu``."""
    return _GatedSilu.apply(gate, value)


class _GatedSilu(torch.autograd.Function):
    """Saves its inputs and computes the sigmoid again in the backward pass."""

    @staticmethod
    def forward(ctx, gate, value):
        if not _is_dense(gate):
            gate = gate.contiguous()
        value = _in_layout_of(gate, value)
        output = torch.empty_like(gate)
        _launch(gate_kernel, gate, value, output)
        ctx.save_for_backward(gate, value)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        gate, value = ctx.saved_tensors
        grad = _in_layout_of(gate, grad)
        grad_gate, grad_value = torch.empty_like(gate), torch.empty_like(gate)
        _launch(gate_backward_kernel, gate, value, grad, grad_gate, grad_value)
        return grad_gate, grad_value


def _is_dense(x: Tensor) -> bool:
    """Whether x fills its memory without gaps, in some order of its dimensions."""
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _in_layout_of(gate: Tensor, x: Tensor) -> Tensor:
    if x.stride() == gate.stride():
        return x
    return torch.empty_like(gate).copy_(x)


def _launch(kernel, *tensors):
    count = tensors[0].numel()
    with torch.cuda.device_of(tensors[0]):
        kernel[(triton.cdiv(count, BLOCK),)](
            *tensors, count, BLOCK=BLOCK, num_warps=NUM_WARPS
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
