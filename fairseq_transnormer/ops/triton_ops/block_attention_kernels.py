"""Kernels of block attention: a program computes one block of one head as one tile.

Letters: W block size, D head width of queries and keys, E of values. Tensors are (B, N,
H, width) with the strides of their batch, length and head; the width is contiguous.
"""

import triton
import triton.language as tl

from .kernel_language import dot

_RUN_TIME = ("length", "blocks", "heads")


@triton.jit
def _place(heads, blocks, BLOCK_SIZE: tl.constexpr):
    """Batch row, head and the block's positions; int64, so that no offset overflows."""
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)
    block = (program // heads % blocks).to(tl.int64)
    row = (program // heads // blocks).to(tl.int64)
    return row, head, block * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)


@triton.jit
def _tile(
    tensor, row, head, positions, stride_b, stride_n, stride_h, WIDTH: tl.constexpr
):
    """Pointers to (positions, WIDTH)."""
    start = tensor + row * stride_b + head * stride_h
    return start + positions[:, None] * stride_n + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _real_keys(pads, row, positions, stride_b, stride_n, length):
    """Which positions hold a token that can be seen."""
    inside = positions < length
    if pads is None:
        return inside
    else:
        pad = tl.load(pads + row * stride_b + positions * stride_n, mask=inside)
        return inside & (pad == 0)


@triton.jit
def _load(pointers, mask, WIDE: tl.constexpr):
    """A tile with zeros where the mask is False, in float32 if WIDE."""
    tile = tl.load(pointers, mask=mask, other=0.0)
    if WIDE:
        tile = tile.to(tl.float32)
    return tile


@triton.jit
def _product(a, b, PRECISION: tl.constexpr):
    """a b in float32."""
    zeros = tl.zeros((a.shape[0], b.shape[1]), tl.float32)
    return dot(a, b, zeros, PRECISION)


@triton.jit
def _numerators(scores, visible, ACTIVATION: tl.constexpr, AXIS: tl.constexpr):
    """The weights before they are divided by their totals; keys lie along AXIS."""
    if ACTIVATION == "relu":
        return tl.where(visible, tl.maximum(scores, 0.0), 0.0)
    else:
        scores = tl.where(visible, scores, float("-inf"))
        largest = tl.max(scores, AXIS)
        # a query that sees no key: exp(-inf - 0) = 0, where -inf - -inf is NaN
        largest = tl.where(largest == float("-inf"), 0.0, largest)
        return tl.exp(scores - tl.expand_dims(largest, AXIS))


@triton.jit
def _totals(numerators, AXIS: tl.constexpr):
    """What softmax divides by; 1 for a query that sees no key."""
    total = tl.sum(numerators, AXIS)
    return tl.expand_dims(tl.where(total > 0, total, 1.0), AXIS)


@triton.jit
def _weights(scores, visible, ACTIVATION: tl.constexpr, AXIS: tl.constexpr):
    weights = _numerators(scores, visible, ACTIVATION, AXIS)
    if ACTIVATION == "softmax":
        weights = weights / _totals(weights, AXIS)
    return weights


@triton.jit
def _score_gradients(weights, gradients, ACTIVATION: tl.constexpr, AXIS: tl.constexpr):
    """Gradients in the scores by those in the weights; keys lie along AXIS."""
    if ACTIVATION == "relu":
        return tl.where(weights > 0, gradients, 0.0)
    else:
        mean = tl.expand_dims(tl.sum(weights * gradients, AXIS), AXIS)
        return weights * (gradients - mean)


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
    row, head, n = _place(heads, blocks, BLOCK_SIZE)
    inside = (n < length)[:, None]
    real = _real_keys(pads, row, n, pads_stride_b, pads_stride_n, length)
    q_at = _tile(query, row, head, n, query_stride_b, query_stride_n, query_stride_h, D)
    k_at = _tile(key, row, head, n, key_stride_b, key_stride_n, key_stride_h, D)
    v_at = _tile(value, row, head, n, value_stride_b, value_stride_n, value_stride_h, E)
    q = _load(q_at, inside, WIDE)
    k = _load(k_at, real[:, None], WIDE)
    v = _load(v_at, real[:, None], WIDE)

    visible = real[None, :]
    if CAUSAL:
        visible = visible & (n[None, :] <= n[:, None])
    scores = _product(q, tl.trans(k), PRECISION) * scale
    weights = _numerators(scores, visible, ACTIVATION, 1)
    result = _product(weights.to(v.dtype), v, PRECISION)
    if ACTIVATION == "softmax":
        result = result / _totals(weights, 1)
    o_at = _tile(
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
    row, head, n = _place(heads, blocks, BLOCK_SIZE)
    inside = (n < length)[:, None]
    real = _real_keys(pads, row, n, pads_stride_b, pads_stride_n, length)
    q_at = _tile(query, row, head, n, query_stride_b, query_stride_n, query_stride_h, D)
    k_at = _tile(key, row, head, n, key_stride_b, key_stride_n, key_stride_h, D)
    v_at = _tile(value, row, head, n, value_stride_b, value_stride_n, value_stride_h, E)
    do_at = _tile(
        output_gradient, row, head, n, do_stride_b, do_stride_n, do_stride_h, E
    )
    dq_at = _tile(
        query_gradient, row, head, n, dq_stride_b, dq_stride_n, dq_stride_h, D
    )
    dk_at = _tile(key_gradient, row, head, n, dk_stride_b, dk_stride_n, dk_stride_h, D)
    dv_at = _tile(
        value_gradient, row, head, n, dv_stride_b, dv_stride_n, dv_stride_h, E
    )
    q = _load(q_at, inside, WIDE)
    k = _load(k_at, real[:, None], WIDE)
    v = _load(v_at, real[:, None], WIDE)
    do = _load(do_at, inside, WIDE)

    visible = real[None, :]
    if CAUSAL:
        visible = visible & (n[None, :] <= n[:, None])
    scores = _product(q, tl.trans(k), PRECISION) * scale
    weights = _weights(scores, visible, ACTIVATION, 1)
    gradients = _product(do, tl.trans(v), PRECISION)
    gradients = _score_gradients(weights, gradients, ACTIVATION, 1).to(q.dtype)
    dq = _product(gradients, k, PRECISION) * scale
    tl.store(dq_at, dq.to(query_gradient.dtype.element_ty), mask=inside)

    if TRANSPOSE:
        weights = tl.trans(weights.to(do.dtype))
        gradients = tl.trans(gradients)
        # read again: in between, the tiles need no shared memory
        do = _load(do_at, inside, WIDE)
    else:
        visible = real[:, None]
        if CAUSAL:
            visible = visible & (n[:, None] <= n[None, :])
        scores = _product(k, tl.trans(q), PRECISION) * scale
        weights = _weights(scores, visible, ACTIVATION, 0)
        gradients = _product(v, tl.trans(do), PRECISION)
        gradients = _score_gradients(weights, gradients, ACTIVATION, 0).to(q.dtype)
    dv = _product(weights.to(do.dtype), do, PRECISION)
    tl.store(dv_at, dv.to(value_gradient.dtype.element_ty), mask=inside)
    if TRANSPOSE:
        q = _load(q_at, inside, WIDE)
    dk = _product(gradients, q, PRECISION) * scale
    tl.store(dk_at, dk.to(key_gradient.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=("heads",))
def block_attention_step(
    query,
    key,
    value,
    state_key,
    state_value,
    state_length,
    output,
    new_length,
    query_stride_b,
    query_stride_h,
    key_stride_b,
    key_stride_h,
    value_stride_b,
    value_stride_h,
    state_key_stride_b,
    state_key_stride_w,
    state_key_stride_h,
    state_value_stride_b,
    state_value_stride_w,
    state_value_stride_h,
    output_stride_b,
    output_stride_h,
    heads,
    scale,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """One token of one head: into its slot, then attention over the slots up to it.

    The place comes from the device, so that a CUDA graph of this launch can be
    replayed for every token.
    """
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)
    row = (program // heads).to(tl.int64)
    length = tl.load(state_length + row)
    # each head of the row reads the old length, so the new one goes elsewhere
    tl.store(new_length + row, length + 1, mask=head == 0)
    slot = length % BLOCK_SIZE
    slots = tl.arange(0, BLOCK_SIZE)
    earlier = (slots < slot)[:, None]
    current = (slots == slot)[:, None]

    columns = tl.arange(0, D)
    q = tl.load(query + row * query_stride_b + head * query_stride_h + columns)
    k = tl.load(key + row * key_stride_b + head * key_stride_h + columns)
    k = k.to(state_key.dtype.element_ty)
    keys_at = _tile(
        state_key,
        row,
        head,
        slots,
        state_key_stride_b,
        state_key_stride_w,
        state_key_stride_h,
        D,
    )
    keys = tl.load(keys_at, mask=earlier, other=0.0).to(tl.float32)
    k = tl.broadcast_to(k[None, :], (BLOCK_SIZE, D))
    tl.store(keys_at, k, mask=current)
    keys = tl.where(current, k.to(tl.float32), keys)
    scores = tl.sum(keys * q.to(tl.float32)[None, :], 1)[:, None] * scale

    columns = tl.arange(0, E)
    v = tl.load(value + row * value_stride_b + head * value_stride_h + columns)
    v = v.to(state_value.dtype.element_ty)
    values_at = _tile(
        state_value,
        row,
        head,
        slots,
        state_value_stride_b,
        state_value_stride_w,
        state_value_stride_h,
        E,
    )
    values = tl.load(values_at, mask=earlier, other=0.0).to(tl.float32)
    v = tl.broadcast_to(v[None, :], (BLOCK_SIZE, E))
    tl.store(values_at, v, mask=current)
    values = tl.where(current, v.to(tl.float32), values)

    weights = _weights(scores, earlier | current, ACTIVATION, 0)
    result = tl.sum(weights * values, 0)
    output_at = output + row * output_stride_b + head * output_stride_h + columns
    tl.store(output_at, result.to(output.dtype.element_ty))
