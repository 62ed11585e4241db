"""LRPE's kernels and their launch; ``ops.lrpe`` says what is computed.

Letters: B batch, N length, H heads, D head width; b, n of a token.

Feature map, reflection and rotation of queries and keys in one launch. A program takes
BLOCK tokens, which are counted through the batch, and some heads, so that the angles of
a token are computed once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..feature_maps import DERIVATIVES_FROM_OUTPUT, FEATURE_MAPS
from .launch import (
    differentiable,
    empty_with_rows_like,
    launch,
    strides,
    with_contiguous_rows,
)
from .tiles import feature_map, feature_map_derivative_from_output

# elements of a program's tile: 16 for each thread of 4 warps
TILE = 2048
NUM_WARPS = 4
# with fewer programs than this, each takes one head, so that more of them share
FEW_PROGRAMS = 256


def lrpe(
    query: Tensor,
    key: Tensor,
    theta: Tensor,
    reflection: Tensor,
    positions: Tensor,
    *,
    feature_map: str,
) -> tuple[Tensor, Tensor]:
    """``ops.lrpe`` for head widths 32, 64 and 128."""
    if feature_map not in DERIVATIVES_FROM_OUTPUT:
        query, key = FEATURE_MAPS[feature_map](query), FEATURE_MAPS[feature_map](key)
        feature_map = "identity"
    query, key = with_contiguous_rows(query), with_contiguous_rows(key)
    return _encode(
        query,
        key,
        theta.contiguous(),
        reflection.contiguous(),
        positions,
        feature_map,
    )


def _forward(
    query: Tensor,
    key: Tensor,
    theta: Tensor,
    reflection: Tensor,
    positions: Tensor,
    feature_map: str,
) -> tuple[Tensor, Tensor]:
    outputs = empty_with_rows_like(query), empty_with_rows_like(key)
    _launch(
        encode_kernel,
        (query, key, *outputs),
        (theta, reflection, positions),
        feature_map,
    )
    return outputs


def _backward(
    query_out: Tensor,
    key_out: Tensor,
    theta: Tensor,
    reflection: Tensor,
    positions: Tensor,
    grad_query_out: Tensor | None,
    grad_key_out: Tensor | None,
    feature_map: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and theta."""
    outputs = query_out, key_out
    grads = empty_with_rows_like(query_out), empty_with_rows_like(key_out)
    grads_out = (
        torch.zeros_like(x) if grad is None else with_contiguous_rows(grad)
        for x, grad in zip(outputs, (grad_query_out, grad_key_out), strict=True)
    )
    partial_grad_theta = _launch(
        encode_backward_kernel,
        (*outputs, *grads_out, *grads),
        (theta, reflection, positions),
        feature_map,
        backward=True,
    )
    return *grads, partial_grad_theta.sum(0).to(theta.dtype)


def _save(ctx, arguments, outputs):
    # the outputs, which the attention saves anyway
    _, _, *parameters, ctx.feature_map = arguments
    ctx.save_for_backward(*outputs, *parameters)


def _gradients(ctx, backward, *grads_out):
    grads = backward(*ctx.saved_tensors, *grads_out, ctx.feature_map)
    return *grads, None, None, None


def _launch(kernel, tensors, parameters, feature_map, *, backward=False):
    """Run ``kernel`` on (B, N, H, D) tensors; the backward kernel's partial sums of
    theta's gradient."""
    query = tensors[0]
    theta, reflection, positions = parameters
    batch, length, heads, width = query.shape
    block = TILE // width
    blocks = triton.cdiv(batch * length, block)
    heads_a_program = 1 if blocks < FEW_PROGRAMS else heads
    grid = blocks, triton.cdiv(heads, heads_a_program)
    partial_sums = ()
    if backward:
        room = {"dtype": torch.float32, "device": query.device}
        partial_sums = (torch.empty(grid[0] * grid[1], width // 2, **room),)
    launch(
        kernel,
        grid,
        *tensors,
        *partial_sums,
        theta,
        reflection,
        positions,
        batch * length,
        length,
        heads,
        heads_a_program,
        strides(tensors),
        *positions.expand(batch, length).stride(),
        PHI=feature_map,
        WIDTH=width,
        BLOCK=block,
        num_warps=NUM_WARPS,
    )
    return partial_sums[0] if backward else None


# they change from call to call, and a kernel for each kind of number gains nothing
LENGTHS = ["tokens", "length", "heads", "heads_a_program", "positions_stride_b"]


@triton.jit(do_not_specialize=LENGTHS)
def encode_kernel(
    query,
    key,
    query_out,
    key_out,
    theta,
    reflection,
    positions,
    tokens,
    length,
    heads,
    heads_a_program,
    strides,
    positions_stride_b,
    positions_stride_n,
    PHI: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """strides: of query, key, query_out and key_out."""
    b, n, inside = _tokens(tokens, length, BLOCK)
    position = _positions(
        positions, b, n, inside, positions_stride_b, positions_stride_n
    )
    cos, sin = _turns(position, theta, WIDTH)
    v = tl.load(reflection + tl.arange(0, WIDTH)).to(tl.float32)
    query_at, query_stride = _at(query, strides[0], b, n, WIDTH)
    key_at, key_stride = _at(key, strides[1], b, n, WIDTH)
    query_out_at, query_out_stride = _at(query_out, strides[2], b, n, WIDTH)
    key_out_at, key_out_stride = _at(key_out, strides[3], b, n, WIDTH)
    first = tl.program_id(1).to(tl.int64) * heads_a_program
    for i in range(0, heads_a_program):
        head = first + i
        mask = inside[:, None] & (head < heads)
        # both are on their way before the first is needed
        q = tl.load(query_at + head * query_stride, mask=mask, other=0.0)
        k = tl.load(key_at + head * key_stride, mask=mask, other=0.0)
        y = _encoded(q, v, cos, sin, PHI, WIDTH, BLOCK)
        y = y.to(query_out_at.dtype.element_ty)
        tl.store(query_out_at + head * query_out_stride, y, mask=mask)
        y = _encoded(k, v, cos, sin, PHI, WIDTH, BLOCK)
        y = y.to(key_out_at.dtype.element_ty)
        tl.store(key_out_at + head * key_out_stride, y, mask=mask)


@triton.jit(do_not_specialize=LENGTHS)
def encode_backward_kernel(
    query_out,
    key_out,
    grad_query_out,
    grad_key_out,
    grad_query,
    grad_key,
    partial_grad_theta,
    theta,
    reflection,
    positions,
    tokens,
    length,
    heads,
    heads_a_program,
    strides,
    positions_stride_b,
    positions_stride_n,
    PHI: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """strides: of query_out ... grad_key. partial_grad_theta: (programs, D / 2)."""
    b, n, inside = _tokens(tokens, length, BLOCK)
    position = _positions(
        positions, b, n, inside, positions_stride_b, positions_stride_n
    )
    cos, sin = _turns(position, theta, WIDTH)
    v = tl.load(reflection + tl.arange(0, WIDTH)).to(tl.float32)
    query_out_at, query_out_stride = _at(query_out, strides[0], b, n, WIDTH)
    key_out_at, key_out_stride = _at(key_out, strides[1], b, n, WIDTH)
    dy_query_at, dy_query_stride = _at(grad_query_out, strides[2], b, n, WIDTH)
    dy_key_at, dy_key_stride = _at(grad_key_out, strides[3], b, n, WIDTH)
    dx_query_at, dx_query_stride = _at(grad_query, strides[4], b, n, WIDTH)
    dx_key_at, dx_key_stride = _at(grad_key, strides[5], b, n, WIDTH)
    first = tl.program_id(1).to(tl.int64) * heads_a_program
    by_angle = tl.zeros((BLOCK, WIDTH // 2), tl.float32)
    for i in range(0, heads_a_program):
        head = first + i
        mask = inside[:, None] & (head < heads)
        y = tl.load(query_out_at + head * query_out_stride, mask=mask, other=0.0)
        g = tl.load(dy_query_at + head * dy_query_stride, mask, other=0.0)
        dx, angle = _encoded_backward(y, g, v, cos, sin, PHI, WIDTH, BLOCK)
        by_angle += angle
        tl.store(
            dx_query_at + head * dx_query_stride,
            dx.to(dx_query_at.dtype.element_ty),
            mask=mask,
        )
        y = tl.load(key_out_at + head * key_out_stride, mask=mask, other=0.0)
        g = tl.load(dy_key_at + head * dy_key_stride, mask, other=0.0)
        dx, angle = _encoded_backward(y, g, v, cos, sin, PHI, WIDTH, BLOCK)
        by_angle += angle
        tl.store(
            dx_key_at + head * dx_key_stride,
            dx.to(dx_key_at.dtype.element_ty),
            mask=mask,
        )
    partial = tl.sum(by_angle * position[:, None], 0)
    program = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    pairs = tl.arange(0, WIDTH // 2)
    tl.store(partial_grad_theta + program * (WIDTH // 2) + pairs, partial)


@triton.jit
def _tokens(tokens, length, BLOCK: tl.constexpr):
    """Batch row and index of each token of the program, and whether there is one."""
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b, n = token // length, token % length
    return b.to(tl.int64), n.to(tl.int64), token < tokens


@triton.jit
def _positions(positions, b, n, inside, stride_b, stride_n):
    position = tl.load(positions + b * stride_b + n * stride_n, mask=inside, other=0)
    return position.to(tl.float32)


@triton.jit
def _turns(position, theta, WIDTH: tl.constexpr):
    """Cosines and sines of the angles, (BLOCK, WIDTH / 2)."""
    theta = tl.load(theta + tl.arange(0, WIDTH // 2)).to(tl.float32)
    angle = position[:, None] * theta[None, :]
    return tl.cos(angle), tl.sin(angle)


@triton.jit
def _at(tensor, strides, b, n, WIDTH: tl.constexpr):
    """Pointers to head 0 of each token, (BLOCK, WIDTH), and the stride of heads."""
    stride_b, stride_n, stride_h = strides
    tensor += (b * stride_b + n * stride_n)[:, None] + tl.arange(0, WIDTH)[None, :]
    return tensor, stride_h


@triton.jit
def _reflected(x, v):
    return x - 2.0 * tl.sum(x * v[None, :], 1)[:, None] * v[None, :]


@triton.jit
def _pairs(x, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    return tl.split(tl.reshape(x, (BLOCK, WIDTH // 2, 2)))


@triton.jit
def _from_pairs(even, odd, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    return tl.reshape(tl.join(even, odd), (BLOCK, WIDTH))


@triton.jit
def _encoded(
    x, v, cos, sin, PHI: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    x = _reflected(feature_map(x.to(tl.float32), PHI), v)
    even, odd = _pairs(x, WIDTH, BLOCK)
    return _from_pairs(even * cos - odd * sin, even * sin + odd * cos, WIDTH, BLOCK)


@triton.jit
def _encoded_backward(
    y, g, v, cos, sin, PHI: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Gradients in x, and in the angles of its pairs, for the encoded y of x.

    d(even, odd) / d angle = (-odd, even) of y; everything else is turned back.
    """
    even, odd = _pairs(y.to(tl.float32), WIDTH, BLOCK)
    grad_even, grad_odd = _pairs(g.to(tl.float32), WIDTH, BLOCK)
    by_angle = grad_odd * even - grad_even * odd
    grad = _decoded(grad_even, grad_odd, v, cos, sin, WIDTH, BLOCK)
    if PHI != "identity":
        mapped = _decoded(even, odd, v, cos, sin, WIDTH, BLOCK)
        grad *= feature_map_derivative_from_output(mapped, PHI)
    return grad, by_angle


@triton.jit
def _decoded(even, odd, v, cos, sin, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Turned back and reflected back, which is the transpose and the inverse."""
    back = _from_pairs(even * cos + odd * sin, odd * cos - even * sin, WIDTH, BLOCK)
    return _reflected(back, v)


_encode = differentiable(
    "lrpe",
    _forward,
    "(Tensor query, Tensor key, Tensor theta, Tensor reflection, Tensor positions, "
    "str feature_map) -> (Tensor, Tensor)",
    _backward,
    "(Tensor query_out, Tensor key_out, Tensor theta, Tensor reflection, "
    "Tensor positions, Tensor? grad_query_out, Tensor? grad_key_out, str feature_map) "
    "-> (Tensor, Tensor, Tensor)",
    save=_save,
    gradients=_gradients,
    results=2,
)
