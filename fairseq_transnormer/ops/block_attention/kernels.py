"""Kernels of block attention: a program computes one block of one head as one tile.

Letters: B batch, N length, H heads, W block size, D head width of queries and keys, E
of values. Tensors are (B, N, H, width) with their strides, a state's (B, W, H, width).
"""

import triton
import triton.language as tl

from ..kernels import dropout
from ..kernels.dropout import is_kept
from ..kernels.tiles import dot, head_rows

# the stride from row to row of a mask is its length
_RUN_TIME = ("length", "blocks", "heads", "pads_stride_b", *dropout.NUMBERS)


@triton.jit(do_not_specialize=_RUN_TIME)
def block_attention_forward(
    query,
    key,
    value,
    pads,
    output,
    strides,
    pads_stride_b,
    pads_stride_n,
    output_strides,
    length,
    blocks,
    heads,
    scale,
    seed,
    threshold,
    growth,
    DROPS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    CAUSAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """strides: of query, key and value. pads: bool, True where a key must not be seen.

    DROPS: whether weights are dropped by the seed; threshold, growth: see
    ``dropout.threshold_and_growth``.
    WIDE: float32 operands, for float16 weights that may pass float16's range.
    """
    row, head, n = place(heads, blocks, BLOCK_SIZE)
    inside = (n < length)[:, None]
    real = real_keys(pads, row, n, pads_stride_b, pads_stride_n, length)
    q_at = pointers(query, strides[0], row, head, n, D)
    k_at = pointers(key, strides[1], row, head, n, D)
    v_at = pointers(value, strides[2], row, head, n, E)
    q = load(q_at, inside, WIDE)
    k = load(k_at, real[:, None], WIDE)
    v = load(v_at, real[:, None], WIDE)

    visible = real[None, :]
    if CAUSAL:
        visible = visible & (n[None, :] <= n[:, None])
    scores = product(q, tl.trans(k), PRECISION) * scale
    weights = weight_numerators(scores, visible, ACTIVATION, 1)
    kept = weights
    if DROPS:
        kept = tl.where(kept_weights(seed, threshold, BLOCK_SIZE), weights, 0.0)
    result = product(kept.to(v.dtype), v, PRECISION)
    if ACTIVATION == "softmax":
        # a softmax of all weights, of which some are dropped
        result = result / weight_totals(weights, 1)
    if DROPS:
        result = result * growth
    o_at = pointers(output, output_strides, row, head, n, E)
    tl.store(o_at, result.to(o_at.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=_RUN_TIME)
def block_attention_backward(
    inputs,
    pads,
    grads,
    strides,
    pads_stride_b,
    pads_stride_n,
    grad_strides,
    length,
    blocks,
    heads,
    scale,
    seed,
    threshold,
    growth,
    DROPS: tl.constexpr,
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

    inputs: query, key, value; strides: theirs. grads: of the output, query, key, value;
    grad_strides: theirs. seed ... DROPS: as in the forward pass.
    TRANSPOSE: transpose weights and gradients for the products that need it, which
    takes fewer registers and less shared memory. Triton 3.4 to 3.7.0 miscompiles that
    on Hopper: there the transposed matrices are computed from queries and keys again.
    """
    if DROPS and not TRANSPOSE:
        # before the tiles take the shared memory that this goes through
        kept = kept_weights(seed, threshold, BLOCK_SIZE)
        kept_transposed = tl.trans(kept)
    query, key, value = inputs
    grad_output, grad_query, grad_key, grad_value = grads
    row, head, n = place(heads, blocks, BLOCK_SIZE)
    inside = (n < length)[:, None]
    real = real_keys(pads, row, n, pads_stride_b, pads_stride_n, length)
    q_at = pointers(query, strides[0], row, head, n, D)
    k_at = pointers(key, strides[1], row, head, n, D)
    v_at = pointers(value, strides[2], row, head, n, E)
    do_at = pointers(grad_output, grad_strides[0], row, head, n, E)
    dq_at = pointers(grad_query, grad_strides[1], row, head, n, D)
    dk_at = pointers(grad_key, grad_strides[2], row, head, n, D)
    dv_at = pointers(grad_value, grad_strides[3], row, head, n, E)
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
    if DROPS:
        if TRANSPOSE:
            kept = kept_weights(seed, threshold, BLOCK_SIZE)
        gradients = tl.where(kept, gradients * growth, 0.0)
    gradients = score_gradients(weights, gradients, ACTIVATION, 1).to(q.dtype)
    dq = product(gradients, k, PRECISION) * scale
    tl.store(dq_at, dq.to(dq_at.dtype.element_ty), mask=inside)

    if TRANSPOSE:
        if DROPS:
            weights = tl.where(kept, weights, 0.0)
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
        if DROPS:
            gradients = tl.where(kept_transposed, gradients * growth, 0.0)
        gradients = score_gradients(weights, gradients, ACTIVATION, 0).to(q.dtype)
        if DROPS:
            weights = tl.where(kept_transposed, weights, 0.0)
    dv = product(weights.to(do.dtype), do, PRECISION)
    if DROPS:
        dv = dv * growth
    tl.store(dv_at, dv.to(dv_at.dtype.element_ty), mask=inside)
    if TRANSPOSE:
        q = load(q_at, inside, WIDE)
    dk = product(gradients, q, PRECISION) * scale
    tl.store(dk_at, dk.to(dk_at.dtype.element_ty), mask=inside)


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
    strides,
    heads,
    scale,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """One token of one head: into its slot, then attention over the slots up to it.

    strides: of query, key, value, state_key, state_value and output.
    The block of the state is kept in place. Where the token goes is read on the
    device, so that a CUDA graph of this launch can be replayed for every token.
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
    query, _ = head_rows(query, strides[0], row, head)
    q = tl.load(query + columns)
    keys_at = pointers(state_key, strides[3], row, head, slots, D)
    key, _ = head_rows(key, strides[1], row, head)
    k = tl.load(key + columns).to(keys_at.dtype.element_ty)
    keys = tl.load(keys_at, mask=earlier, other=0.0).to(tl.float32)
    k = tl.broadcast_to(k[None, :], (BLOCK_SIZE, D))
    tl.store(keys_at, k, mask=current)
    keys = tl.where(current, k.to(tl.float32), keys)
    scores = tl.sum(keys * q.to(tl.float32)[None, :], 1)[:, None] * scale

    columns = tl.arange(0, E)
    values_at = pointers(state_value, strides[4], row, head, slots, E)
    value, _ = head_rows(value, strides[2], row, head)
    v = tl.load(value + columns).to(values_at.dtype.element_ty)
    values = tl.load(values_at, mask=earlier, other=0.0).to(tl.float32)
    v = tl.broadcast_to(v[None, :], (BLOCK_SIZE, E))
    tl.store(values_at, v, mask=current)
    values = tl.where(current, v.to(tl.float32), values)

    weights = attention_weights(scores, earlier | current, ACTIVATION, 0)
    result = tl.sum(weights * values, 0)
    output, _ = head_rows(output, strides[5], row, head)
    tl.store(output + columns, result.to(output.dtype.element_ty))


@triton.jit
def place(heads, blocks, BLOCK_SIZE: tl.constexpr):
    """Batch row, head and the block's positions; int64, so that no offset overflows."""
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)
    block = (program // heads % blocks).to(tl.int64)
    row = (program // heads // blocks).to(tl.int64)
    return row, head, block * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)


@triton.jit
def kept_weights(seed, threshold, BLOCK_SIZE: tl.constexpr):
    """Which weights of the block are not dropped; queries lie along axis 0."""
    query = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    return is_kept(query, seed, threshold, BLOCK_SIZE, BLOCK_SIZE)


@triton.jit
def pointers(tensor, strides, row, head, positions, WIDTH: tl.constexpr):
    """Pointers to (positions, WIDTH) of one head."""
    start, stride = head_rows(tensor, strides, row, head)
    return start + positions[:, None] * stride + tl.arange(0, WIDTH)[None, :]


@triton.jit
def real_keys(pads, row, positions, stride_b, stride_n, length):
    """Which positions hold a token that can be seen."""
    inside = positions < length
    if pads is None:
        return inside
    else:
        pad = tl.load(pads + row * stride_b + positions * stride_n, mask=inside)
        return inside & (pad == 0)


@triton.jit
def load(pointers, mask, WIDE: tl.constexpr):
    """A tile with zeros where the mask is False, in float32 if WIDE."""
    tile = tl.load(pointers, mask=mask, other=0.0)
    if WIDE:
        tile = tile.to(tl.float32)
    return tile


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """a b in float32."""
    zeros = tl.zeros((a.shape[0], b.shape[1]), tl.float32)
    return dot(a, b, zeros, PRECISION)


@triton.jit
def weight_numerators(scores, visible, ACTIVATION: tl.constexpr, AXIS: tl.constexpr):
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
def weight_totals(numerators, AXIS: tl.constexpr):
    """What softmax divides by; 1 for a query that sees no key."""
    total = tl.sum(numerators, AXIS)
    return tl.expand_dims(tl.where(total > 0, total, 1.0), AXIS)


@triton.jit
def attention_weights(scores, visible, ACTIVATION: tl.constexpr, AXIS: tl.constexpr):
    weights = weight_numerators(scores, visible, ACTIVATION, AXIS)
    if ACTIVATION == "softmax":
        weights = weights / weight_totals(weights, AXIS)
    return weights


@triton.jit
def score_gradients(weights, gradients, ACTIVATION: tl.constexpr, AXIS: tl.constexpr):
    """Gradients in the scores by those in the weights; keys lie along AXIS."""
    if ACTIVATION == "relu":
        return tl.where(weights > 0, gradients, 0.0)
    else:
        mean = tl.expand_dims(tl.sum(weights * gradients, AXIS), AXIS)
        return weights * (gradients - mean)
