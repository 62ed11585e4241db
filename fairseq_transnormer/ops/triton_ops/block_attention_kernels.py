"""Kernels of block attention: a program computes one block of one head as one tile.

Letters: W block size, D head width of queries and keys, E of values. Tensors are (B, N,
H, width) with the strides of their batch, length and head; the width is contiguous.
"""

import triton
import triton.language as tl

from .block_attention_tile import (
    attention_weights,
    load,
    place,
    pointers,
    product,
    real_keys,
    score_gradients,
    weight_numerators,
    weight_totals,
)

# the stride from row to row of a mask is its length
_RUN_TIME = ("length", "blocks", "heads", "pads_stride_b")


@triton.jit(do_not_specialize=_RUN_TIME)
def block_attention_forward(
    query,
    key,
    value,
    pads,
    output,
    query_stride_b,
    query_stride_n,
    query_stride_h,
    key_stride_b,
    key_stride_n,
    key_stride_h,
    value_stride_b,
    value_stride_n,
    value_stride_h,
    pads_stride_b,
    pads_stride_n,
    output_stride_b,
    output_stride_n,
    output_stride_h,
    length,
    blocks,
    heads,
    scale,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    CAUSAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """pads: bool, True where a key must not be seen, or None.

    WIDE: float32 operands, for float16 weights that may pass float16's range.
    """
    row, head, n = place(heads, blocks, BLOCK_SIZE)
    inside = (n < length)[:, None]
    real = real_keys(pads, row, n, pads_stride_b, pads_stride_n, length)
    q_at = pointers(
        query, row, head, n, query_stride_b, query_stride_n, query_stride_h, D
    )
    k_at = pointers(key, row, head, n, key_stride_b, key_stride_n, key_stride_h, D)
    v_at = pointers(
        value, row, head, n, value_stride_b, value_stride_n, value_stride_h, E
    )
    q = load(q_at, inside, WIDE)
    k = load(k_at, real[:, None], WIDE)
    v = load(v_at, real[:, None], WIDE)

    visible = real[None, :]
    if CAUSAL:
        visible = visible & (n[None, :] <= n[:, None])
    scores = product(q, tl.trans(k), PRECISION) * scale
    weights = weight_numerators(scores, visible, ACTIVATION, 1)
    result = product(weights.to(v.dtype), v, PRECISION)
    if ACTIVATION == "softmax":
        result = result / weight_totals(weights, 1)
    o_at = pointers(
        output, row, head, n, output_stride_b, output_stride_n, output_stride_h, E
    )
    tl.store(o_at, result.to(output.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=_RUN_TIME)
def block_attention_backward(
    query,
    key,
    value,
    pads,
    output_gradient,
    query_gradient,
    key_gradient,
    value_gradient,
    query_stride_b,
    query_stride_n,
    query_stride_h,
    key_stride_b,
    key_stride_n,
    key_stride_h,
    value_stride_b,
    value_stride_n,
    value_stride_h,
    pads_stride_b,
    pads_stride_n,
    do_stride_b,
    do_stride_n,
    do_stride_h,
    dq_stride_b,
    dq_stride_n,
    dq_stride_h,
    dk_stride_b,
    dk_stride_n,
    dk_stride_h,
    dv_stride_b,
    dv_stride_n,
    dv_stride_h,
    length,
    blocks,
    heads,
    scale,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    CAUSAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
    TRANSPOSE: tl.constexpr,
):
    """The weights anew, then all three gradients.

    TRANSPOSE: transpose weights and gradients for the products that need it, which
    takes fewer registers and less shared memory. Triton 3.4 to 3.7.0 miscompiles that
    on Hopper: there the transposed matrices are computed from queries and keys again.
    """
    row, head, n = place(heads, blocks, BLOCK_SIZE)
    inside = (n < length)[:, None]
    real = real_keys(pads, row, n, pads_stride_b, pads_stride_n, length)
    q_at = pointers(
        query, row, head, n, query_stride_b, query_stride_n, query_stride_h, D
    )
    k_at = pointers(key, row, head, n, key_stride_b, key_stride_n, key_stride_h, D)
    v_at = pointers(
        value, row, head, n, value_stride_b, value_stride_n, value_stride_h, E
    )
    do_at = pointers(
        output_gradient, row, head, n, do_stride_b, do_stride_n, do_stride_h, E
    )
    dq_at = pointers(
        query_gradient, row, head, n, dq_stride_b, dq_stride_n, dq_stride_h, D
    )
    dk_at = pointers(
        key_gradient, row, head, n, dk_stride_b, dk_stride_n, dk_stride_h, D
    )
    dv_at = pointers(
        value_gradient, row, head, n, dv_stride_b, dv_stride_n, dv_stride_h, E
    )
    q = load(q_at, inside, WIDE)
    k = load(k_at, real[:, None], WIDE)
    v = load(v_at, real[:, None], WIDE)
    do = load(do_at, inside, WIDE)

    visible = real[None, :]
    if CAUSAL:
        visible = visible & (n[None, :] <= n[:, None])
    scores = product(q, tl.trans(k), PRECISION) * scale
    weights = attention_weights(scores, visible, ACTIVATION, 1)
    gradients = product(do, tl.trans(v), PRECISION)
    gradients = score_gradients(weights, gradients, ACTIVATION, 1).to(q.dtype)
    dq = product(gradients, k, PRECISION) * scale
    tl.store(dq_at, dq.to(query_gradient.dtype.element_ty), mask=inside)

    if TRANSPOSE:
        weights = tl.trans(weights.to(do.dtype))
        gradients = tl.trans(gradients)
        # read again: in between, the tiles need no shared memory
        do = load(do_at, inside, WIDE)
    else:
        visible = real[:, None]
        if CAUSAL:
            visible = visible & (n[:, None] <= n[None, :])
        scores = product(k, tl.trans(q), PRECISION) * scale
        weights = attention_weights(scores, visible, ACTIVATION, 0)
        gradients = product(v, tl.trans(do), PRECISION)
        gradients = score_gradients(weights, gradients, ACTIVATION, 0).to(q.dtype)
    dv = product(weights.to(do.dtype), do, PRECISION)
    tl.store(dv_at, dv.to(value_gradient.dtype.element_ty), mask=inside)
    if TRANSPOSE:
        q = load(q_at, inside, WIDE)
    dk = product(gradients, q, PRECISION) * scale
    tl.store(dk_at, dk.to(key_gradient.dtype.element_ty), mask=inside)
