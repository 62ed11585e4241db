"""Kernels of causal linear attention: the output, and the three gradients.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.

The gradients are linear attentions, too, of other tensors (``attend_segment``):

    output  o_i  = sum_{j <= i} (q_i . k_j) v_j
    dQ      dq_i = sum_{j <= i} (do_i . v_j) k_j
    dK      dk_i = sum_{j >= i} (v_i . do_j) q_j
    dV      dv_i = sum_{j >= i} (k_i . q_j) do_j

A program writes one segment of the tokens, chunk by chunk. It computes the scores
within a chunk as they stand; what came before enters through the state sum_j k_j v_j^T.
That of dQ is the state of the output transposed, that of dK the state of dV. Columns of
values are independent and are cut into tiles, so that wide heads fit. No result of a
product is transposed: Triton 3.4 to 3.7.0 miscompiles that on Hopper.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..kernels.tiles import (
    add_states,
    from_column,
    head_rows,
    inside_rows,
    kept_rows,
    load_tile,
    mixed_dot,
    some_chunks,
    state_offsets,
    store_tile,
)

_RUN_TIME = ("length", "heads", "segments", "segment")


@triton.jit(do_not_specialize=_RUN_TIME)
def causal_forward_kernel(
    query,
    key,
    value,
    output,
    pads,
    states,
    strides,
    length,
    heads,
    segments,
    segment,
    D: tl.constexpr,
    E: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """strides: of query, key, value, output. states: initial, sums and final.

    initial, final: (B * H, D, E) or None; sums of k^T v, (B * H, segments, D, E), or
    None. Grid: (B * H * segments, E / TILE).
    """
    program = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE
    sequence = program // segments
    row, head = sequence // heads, sequence % heads
    # the last segments of a short sequence take longest, so they start first
    index = segments - 1 - program % segments
    initial, sums, final = states
    if pads is not None:
        pads += row * length
    attend_segment(
        (
            head_rows(query, strides[0], row, head),
            head_rows(key, strides[1], row, head),
            from_column(head_rows(value, strides[2], row, head), column),
            from_column(head_rows(output, strides[3], row, head), column),
        ),
        False,
        False,
        pads,
        initial,
        True,
        sums,
        final,
        True,
        column,
        sequence,
        index,
        (length, segments, segment),
        WIDTH=D,
        FULL=E,
        TILE=TILE,
        CHUNK=CHUNK,
        PRECISION=PRECISION,
    )


@triton.jit(do_not_specialize=_RUN_TIME)
def causal_backward_kernel(
    inputs,
    grads,
    pads,
    before,
    after,
    strides,
    length,
    heads,
    segments,
    segment,
    D: tl.constexpr,
    E: tl.constexpr,
    TILE_D: tl.constexpr,
    TILE_E: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Programs of dQ, dK and dV next to each other in time: they share their tokens.

    inputs: query, key, value and the output's gradient; grads: of query, key and value;
    strides: of all seven. before: initial and sums; after: grad_final, grad_sums and
    grad_initial. initial, grad_final, grad_initial: (B * H, D, E) or None. sums of
    k^T v, grad_sums of q^T do: (B * H, segments, D, E) or None.
    Grid: (B * H * segments * TASKS,).

    Where the three have tiles of one shape and dtype, one code path writes any of them.
    It chooses at run time what it reads. A path for each would need memory for the
    tiles of all three, and ptxas would wait for every product of Hopper's (wgmma). D
    and E may differ, and float16 has a gradient of the output in float32: there each
    has a path of its own.
    """
    TASKS: tl.constexpr = 2 * (D // TILE_D) + E // TILE_E
    query, key, value, grad_output = inputs
    grad_query, grad_key, grad_value = grads
    ONE_PATH: tl.constexpr = D == E and grad_output.dtype == query.dtype
    task = tl.program_id(0) % TASKS
    program = (tl.program_id(0) // TASKS).to(tl.int64)
    sequence = program // segments
    index = program % segments
    row, head = sequence // heads, sequence % heads
    if pads is not None:
        pads += row * length
    rows = (
        head_rows(query, strides[0], row, head),
        head_rows(key, strides[1], row, head),
        head_rows(value, strides[2], row, head),
        head_rows(grad_output, strides[3], row, head),
        head_rows(grad_query, strides[4], row, head),
        head_rows(grad_key, strides[5], row, head),
        head_rows(grad_value, strides[6], row, head),
    )
    place = (sequence, index, (length, segments, segment))
    if ONE_PATH:
        _write_gradient(
            task // (D // TILE_D),
            task % (D // TILE_D) * TILE_D,
            rows,
            pads,
            before,
            after,
            place,
            WHICH=None,
            WIDTH=D,
            FULL=D,
            TILE=TILE_D,
            CHUNK=CHUNK,
            PRECISION=PRECISION,
        )
    elif task < D // TILE_D:
        _write_gradient(
            0,
            task * TILE_D,
            rows,
            pads,
            before,
            after,
            place,
            WHICH=0,
            WIDTH=E,
            FULL=D,
            TILE=TILE_D,
            CHUNK=CHUNK,
            PRECISION=PRECISION,
        )
    elif task < 2 * (D // TILE_D):
        _write_gradient(
            1,
            (task - D // TILE_D) * TILE_D,
            rows,
            pads,
            before,
            after,
            place,
            WHICH=1,
            WIDTH=E,
            FULL=D,
            TILE=TILE_D,
            CHUNK=CHUNK,
            PRECISION=PRECISION,
        )
    else:
        _write_gradient(
            2,
            (task - 2 * (D // TILE_D)) * TILE_E,
            rows,
            pads,
            before,
            after,
            place,
            WHICH=2,
            WIDTH=D,
            FULL=E,
            TILE=TILE_E,
            CHUNK=CHUNK,
            PRECISION=PRECISION,
        )


@triton.jit
def _write_gradient(
    which,
    column,
    rows,
    pads,
    before,
    after,
    place,
    WHICH: tl.constexpr,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write a tile of one segment of dQ (0), dK (1) or dV (2).

    which: the gradient's number; WHICH: that number, or None if it is known at run time
        only.
    """
    q, k, v, do, dq, dk, dv = rows
    initial, sums = before
    grad_final, grad_sums, grad_initial = after
    sequence, index, lengths = place
    if WHICH is None:
        gradient = which
    else:
        gradient: tl.constexpr = WHICH  # type: ignore[no-redef]
    initial_state = initial
    has_initial_state = gradient == 0
    if grad_final is not None:
        if initial is not None:
            initial_state = _pick(gradient, WHICH, initial, grad_final, grad_final)
            has_initial_state = True
        else:
            initial_state = grad_final
            has_initial_state = gradient > 0
    if sums is not None:
        sums = _pick(gradient, WHICH, sums, grad_sums, grad_sums)
    attend_segment(
        (
            _pick_rows(gradient, WHICH, do, v, k),
            _pick_rows(gradient, WHICH, v, do, q),
            from_column(_pick_rows(gradient, WHICH, k, q, do), column),
            from_column(_pick_rows(gradient, WHICH, dq, dk, dv), column),
        ),
        gradient > 0,
        gradient < 2,
        pads,
        initial_state,
        has_initial_state,
        sums,
        grad_initial,
        gradient == 2,
        column,
        sequence,
        index,
        lengths,
        WIDTH=WIDTH,
        FULL=FULL,
        TILE=TILE,
        CHUNK=CHUNK,
        PRECISION=PRECISION,
    )


@triton.jit
def _pick(which, WHICH: tl.constexpr, first, second, third):
    """first, second or third by its number; WHICH: the number, or None at run time."""
    if WHICH is None:
        return tl.where(which == 0, first, tl.where(which == 1, second, third))
    elif WHICH == 0:
        return first
    elif WHICH == 1:
        return second
    else:
        return third


@triton.jit
def _pick_rows(which, WHICH: tl.constexpr, first, second, third):
    """_pick for ``rows``."""
    return (
        _pick(which, WHICH, first[0], second[0], third[0]),
        _pick(which, WHICH, first[1], second[1], third[1]),
    )


@triton.jit
def attend_segment(
    rows,
    reverse,
    transposed,
    pads,
    initial_state,
    has_initial_state,
    sums,
    final_state,
    stores_final_state,
    column,
    sequence,
    index,
    lengths,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write segment ``index`` of output_i = sum_{j <= i} (query_i . key_j) value_j.

    rows: of query, key, value and output; value and output from ``column`` on.
    reverse: the sum is over j >= i. transposed: states are stored as (FULL, WIDTH).
    initial_state: before the first token, or after the last in reverse; None for zero.
        has_initial_state: False for zero, at run time.
    sums: sum_j key_j value_j^T of each segment; None where there is one segment.
    final_state: where the state after all tokens goes, if stores_final_state; or None.
    lengths: tokens, segments, and tokens of a segment.
    WIDTH, FULL: of key and of value.
    """
    length, segments, segment = lengths
    SIZE: tl.constexpr = WIDTH * FULL
    if initial_state is not None:
        initial_state += sequence * SIZE
    if sums is not None:
        sums += sequence * segments * SIZE
    first = index * segment
    before = (
        initial_state,
        has_initial_state,
        sums,
        tl.where(reverse, index + 1, 0),
        tl.where(reverse, segments, index),
    )
    if transposed:
        state = _state_before(before, column, WIDTH, FULL, TILE, TRANSPOSED=True)
    else:
        state = _state_before(before, column, WIDTH, FULL, TILE, TRANSPOSED=False)
    chunks = some_chunks(first, first + segment, length, CHUNK)
    for chunk in range(0, chunks):
        state = _attend_chunk(
            rows,
            reverse,
            pads,
            first + tl.where(reverse, chunks - 1 - chunk, chunk) * CHUNK,
            length,
            state,
            WIDTH=WIDTH,
            TILE=TILE,
            CHUNK=CHUNK,
            PRECISION=PRECISION,
        )
    if final_state is not None:
        if stores_final_state & (index == tl.where(reverse, 0, segments - 1)):
            offsets = state_offsets(WIDTH, TILE, FULL)
            tl.store(final_state + sequence * SIZE + column + offsets, state)


@triton.jit
def _state_before(
    before,
    column,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """The initial state and the sums of segments low ... high - 1: (WIDTH, TILE).

    In float32. before: the initial state, whether there is one at run time, sums, low
    and high. TRANSPOSED: they are stored as (FULL, WIDTH), and are added up as they
    stand, so that loads are wide.
    """
    initial_state, has_initial_state, sums, low, high = before
    if TRANSPOSED:
        offsets = column * WIDTH + state_offsets(TILE, WIDTH, WIDTH)
        state = tl.zeros((TILE, WIDTH), tl.float32)
    else:
        offsets = column + state_offsets(WIDTH, TILE, FULL)
        state = tl.zeros((WIDTH, TILE), tl.float32)
    if initial_state is not None:
        state += tl.load(initial_state + offsets, mask=has_initial_state, other=0.0)
    if sums is not None:
        state = add_states(state, sums, low, high, offsets, WIDTH * FULL)
    if TRANSPOSED:
        state = tl.trans(state)
    return state


@triton.jit
def _attend_chunk(
    rows,
    reverse,
    pads,
    start,
    length,
    state,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write a chunk of the output; returns the state after it."""
    query, key, value, output = rows
    inside = inside_rows(start, length, CHUNK)
    keep_queries = inside
    keep_keys = inside
    if pads is not None:
        # in reverse the tensors that are read as queries are the keys and values
        kept = kept_rows(start, length, pads, CHUNK)
        keep_queries = tl.where(reverse, kept, inside)
        keep_keys = tl.where(reverse, inside, kept)
    q = load_tile(query, start, keep_queries, CHUNK, WIDTH)
    k = load_tile(key, start, keep_keys, CHUNK, WIDTH)
    v = load_tile(value, start, keep_keys, CHUNK, TILE)
    index = tl.arange(0, CHUNK)
    index = tl.where(reverse, CHUNK - 1 - index, index)
    visible = index[:, None] >= index[None, :]
    scores = tl.zeros((CHUNK, CHUNK), tl.float32)
    o = tl.zeros((CHUNK, TILE), tl.float32)
    scores = mixed_dot(q, tl.trans(k), scores, PRECISION)
    scores = tl.where(visible, scores, 0.0)
    o = mixed_dot(q, state, o, PRECISION)
    o = mixed_dot(scores, v, o, PRECISION)
    state = mixed_dot(tl.trans(k), v, state, PRECISION)
    store_tile(o, output, start, inside, keep_queries, CHUNK, TILE)
    return state
