"""The gate's kernels and their launch; ``ops.gated_silu`` says what is computed.

Elementwise, in the order of memory: the tensors have to agree in their strides only. Or
gate and value are the halves of one tensor's rows. Programs that are full have no mask,
so that they load and store 16 bytes at a time whatever the number of elements. The
gradient of halves goes by rows and columns, and sums up its columns for the biases.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import differentiable, in_place, launch
from .partial_sums import totals

BLOCK = 2048
NUM_WARPS = 4
# elements that lie next to each other in a row: 16 bytes of half precision
PIECE = tl.constexpr(8)
# a tile of halves, of a program that walks through some rows
ROWS, COLUMNS, ROWS_A_PROGRAM = 16, 128, 64


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


def gradient_of_halves(both: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of both halves, side by side; grad becomes silu(gate) * value.

    Args:
        both: see ``gate_of_halves``.
        grad: contiguous (rows, I), of that dtype, I a multiple of 8.

    Returns:
        (rows, 2 I) in their dtype, and its sum over the rows, (2 I,), likewise.
    """
    return _gradient_halves(both, grad)


def _forward(gate: Tensor, value: Tensor) -> tuple[Tensor]:
    gate = _dense(gate)
    output = torch.empty_like(gate)
    tensors = gate, _in_layout_of(gate, value), output
    _launch(gate_kernel, tensors, WIDTH=None, STRIDE=None)
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
    rows = {"WIDTH": gate.shape[1], "STRIDE": both.shape[1]}
    _launch(gate_kernel, (gate, value, output), **rows)
    return (output,)


def _backward_of_halves(both: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = grad.shape
    grads = torch.empty_like(both)
    programs = triton.cdiv(rows, ROWS_A_PROGRAM)
    partial_sums = grads.new_empty((programs, 2 * width), dtype=torch.float32)
    launch(
        halves_backward_kernel,
        # rows in x: there may be more than the 65,535 programs of y
        (programs, triton.cdiv(width, COLUMNS)),
        both,
        grad,
        grads,
        grad,
        partial_sums,
        rows,
        WIDTH=width,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        ROWS_A_PROGRAM=ROWS_A_PROGRAM,
        num_warps=NUM_WARPS,
    )
    return grads, totals(partial_sums, grads.dtype)


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


def _launch(kernel, tensors, **constants):
    count = tensors[0].numel()
    programs = (triton.cdiv(count, BLOCK),)
    launch(
        kernel, programs, *tensors, count, BLOCK=BLOCK, num_warps=NUM_WARPS, **constants
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
    BLOCK: tl.constexpr,
):
    """product: the gate's output, which may take the place of grad, or None."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    index, _ = _places(first, None, None, BLOCK)
    tensors = (gate, value, grad, grad_gate, grad_value, product)
    if first + BLOCK <= count:
        _backward_block(tensors, index, None)
    else:
        _backward_block(tensors, index, index < count)


@triton.jit(do_not_specialize=["rows"])
def halves_backward_kernel(
    both,
    grad,
    grad_both,
    product,
    partial_sums,
    rows,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS_A_PROGRAM: tl.constexpr,
):
    """both, grad_both: (rows, 2 WIDTH); grad, product: (rows, WIDTH), which may be one;
    partial_sums: (programs by rows, 2 WIDTH)."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(0).to(tl.int64) * ROWS_A_PROGRAM
    sum_a = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_b = tl.zeros((ROWS, COLUMNS), tl.float32)
    for i in range(0, ROWS_A_PROGRAM, ROWS):
        row = first + i + tl.arange(0, ROWS)
        mask = (row < rows)[:, None] & (column < WIDTH)[None, :]
        at = row[:, None] * (2 * WIDTH) + column[None, :]
        product_at = row[:, None] * WIDTH + column[None, :]
        a = tl.load(both + at, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(both + WIDTH + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(grad + product_at, mask=mask, other=0.0).to(tl.float32)
        da, db, y = _gradients_and_product(a, b, g)
        tl.store(grad_both + at, da.to(grad_both.dtype.element_ty), mask=mask)
        tl.store(grad_both + WIDTH + at, db.to(grad_both.dtype.element_ty), mask=mask)
        tl.store(product + product_at, y.to(product.dtype.element_ty), mask=mask)
        sum_a += da
        sum_b += db
    sums = partial_sums + tl.program_id(0).to(tl.int64) * (2 * WIDTH) + column
    tl.store(sums, tl.sum(sum_a, 0), mask=column < WIDTH)
    tl.store(sums + WIDTH, tl.sum(sum_b, 0), mask=column < WIDTH)


@triton.jit
def _gate_block(gate, value, output, index, at, mask):
    a = tl.load(gate + at, mask=mask).to(tl.float32)
    b = tl.load(value + at, mask=mask).to(tl.float32)
    y = a * tl.sigmoid(a) * b
    tl.store(output + index, y.to(output.dtype.element_ty), mask=mask)


@triton.jit
def _backward_block(tensors, index, mask):
    gate, value, grad, grad_gate, grad_value, product = tensors
    a = tl.load(gate + index, mask=mask).to(tl.float32)
    b = tl.load(value + index, mask=mask).to(tl.float32)
    g = tl.load(grad + index, mask=mask).to(tl.float32)
    da, db, y = _gradients_and_product(a, b, g)
    tl.store(grad_gate + index, da.to(grad_gate.dtype.element_ty), mask=mask)
    tl.store(grad_value + index, db.to(grad_value.dtype.element_ty), mask=mask)
    if product is not None:
        tl.store(product + index, y.to(product.dtype.element_ty), mask=mask)


@triton.jit
def _gradients_and_product(a, b, g):
    """Of silu(a) * b, g its gradient."""
    s = tl.sigmoid(a)
    # silu'(a) = s (1 + a (1 - s))
    return g * b * s * (1.0 + a * (1.0 - s)), g * a * s, a * s * b


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
    "(Tensor both, Tensor(a!) grad) -> (Tensor, Tensor)",
    mutates=("grad",),
)
