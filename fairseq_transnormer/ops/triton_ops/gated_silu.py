"""The gate's kernels and their launch; ``ops.gated_silu`` says what is computed.

Elementwise, in the order of memory: the tensors have to agree in their strides only, or
gate and value are the halves of one tensor's rows. Programs that are full have no mask,
so that they load and store 16 bytes at a time whatever the number of elements.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launching import differentiable, in_place, launch

BLOCK = 2048
NUM_WARPS = 4
# elements that lie next to each other in a row: 16 bytes of half precision
PIECE = tl.constexpr(8)


def gated_silu(gate: Tensor, value: Tensor) -> Tensor:
    """``ops.gated_silu``."""
    return _gate(gate, value)[0]


def gradients_and_product(
    gate: Tensor, value: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of gate and value, and silu(gate) * value in the memory of grad."""
    return *_gradients_beside_product(gate, value, grad), grad


def gate_of_halves(both: Tensor) -> Tensor:
    """silu(gate) * value of contiguous (rows, 2 I), gate before value; (rows, I)."""
    return _gate_halves(both)[0]


def gradient_of_halves(both: Tensor, grad: Tensor) -> Tensor:
    """Gradients of both halves, side by side; grad becomes silu(gate) * value.

    Args:
        both: see ``gate_of_halves``.
        grad: contiguous (rows, I), of that dtype.
    """
    return _gradient_halves(both, grad)[0]


def _forward(gate: Tensor, value: Tensor) -> tuple[Tensor]:
    gate = _dense(gate)
    output = torch.empty_like(gate)
    _launch(gate_kernel, (gate, _in_layout_of(gate, value), output))
    return (output,)


def _backward(gate: Tensor, value: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of both; the sigmoid is computed again."""
    gate = _dense(gate)
    grads = torch.empty_like(gate), torch.empty_like(gate)
    others = (_in_layout_of(gate, x) for x in (value, grad))
    _launch(gate_backward_kernel, (gate, *others, *grads, None))
    return grads


def _backward_with_product(
    gate: Tensor, value: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of both; grad becomes silu(gate) * value."""
    gate = _dense(gate)
    grads = torch.empty_like(gate), torch.empty_like(gate)
    value, product = (_in_layout_of(gate, x) for x in (value, grad))
    _launch(gate_backward_kernel, (gate, value, product, *grads, product))
    if product is not grad:
        grad.copy_(product)
    return grads


def _forward_of_halves(both: Tensor) -> tuple[Tensor]:
    gate, value = both.chunk(2, -1)
    output = torch.empty_like(gate, memory_format=torch.contiguous_format)
    _launch(gate_kernel, (gate, value, output), both.shape[1])
    return (output,)


def _backward_of_halves(both: Tensor, grad: Tensor) -> tuple[Tensor]:
    grads = torch.empty_like(both)
    tensors = (*both.chunk(2, -1), grad, *grads.chunk(2, -1), grad)
    _launch(gate_backward_kernel, tensors, both.shape[1])
    return (grads,)


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


def _launch(kernel, tensors, stride=None):
    """stride: between rows of gate and value and of their gradients, where they are
    halves of other tensors' rows."""
    count = tensors[0].numel()
    launch(
        kernel,
        (triton.cdiv(count, BLOCK),),
        *tensors,
        count,
        WIDTH=None if stride is None else tensors[0].shape[-1],
        STRIDE=stride,
        BLOCK=BLOCK,
        num_warps=NUM_WARPS,
    )


@triton.jit(do_not_specialize=["count"])
def gate_kernel(
    gate,
    value,
    output,
    count,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """WIDTH, STRIDE: of the rows of gate and value, multiples of PIECE; None: no gaps
    between them."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    index, at = _places(first, WIDTH, STRIDE, BLOCK)
    if first + BLOCK <= count:
        _gate_block(gate, value, output, index, at, None)
    else:
        _gate_block(gate, value, output, index, at, index < count)


@triton.jit(do_not_specialize=["count"])
def gate_backward_kernel(
    gate,
    value,
    grad,
    grad_gate,
    grad_value,
    product,
    count,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """product: the gate's output, which may take the place of grad, or None."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    index, at = _places(first, WIDTH, STRIDE, BLOCK)
    tensors = (gate, value, grad, grad_gate, grad_value, product)
    if first + BLOCK <= count:
        _backward_block(tensors, index, at, None)
    else:
        _backward_block(tensors, index, at, index < count)


@triton.jit
def _gate_block(gate, value, output, index, at, mask):
    a = tl.load(gate + at, mask=mask).to(tl.float32)
    b = tl.load(value + at, mask=mask).to(tl.float32)
    y = a * tl.sigmoid(a) * b
    tl.store(output + index, y.to(output.dtype.element_ty), mask=mask)


@triton.jit
def _backward_block(tensors, index, at, mask):
    gate, value, grad, grad_gate, grad_value, product = tensors
    a = tl.load(gate + at, mask=mask).to(tl.float32)
    b = tl.load(value + at, mask=mask).to(tl.float32)
    g = tl.load(grad + index, mask=mask).to(tl.float32)
    s = tl.sigmoid(a)
    # silu'(a) = s (1 + a (1 - s))
    da = g * b * s * (1.0 + a * (1.0 - s))
    db = g * a * s
    tl.store(grad_gate + at, da.to(grad_gate.dtype.element_ty), mask=mask)
    tl.store(grad_value + at, db.to(grad_value.dtype.element_ty), mask=mask)
    if product is not None:
        y = a * s * b
        tl.store(product + index, y.to(product.dtype.element_ty), mask=mask)


@triton.jit
def _places(first, WIDTH: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The elements, (BLOCK / PIECE, PIECE): as counted, and where gate has them."""
    piece = tl.arange(0, BLOCK // PIECE)[:, None]
    inside = tl.arange(0, PIECE)[None, :]
    index = first + piece * PIECE + inside
    if WIDTH is None:
        at = index
    else:
        # no piece crosses the end of a row; only the number of a row needs 64 bits
        column = (first % WIDTH // PIECE).to(tl.int32) + piece
        row = first // WIDTH + column // (WIDTH // PIECE)
        at = row * STRIDE + column % (WIDTH // PIECE) * PIECE + inside
    return index, at


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
_gradients_beside_product = in_place(
    "gated_silu_gradients",
    _backward_with_product,
    "(Tensor gate, Tensor value, Tensor(a!) grad) -> (Tensor, Tensor)",
    mutates=("grad",),
)
_gate_halves = in_place(
    "gate_of_halves",
    _forward_of_halves,
    "(Tensor both) -> Tensor",
    mutates=(),
)
_gradient_halves = in_place(
    "gradient_of_halves",
    _backward_of_halves,
    "(Tensor both, Tensor(a!) grad) -> Tensor",
    mutates=("grad",),
)
