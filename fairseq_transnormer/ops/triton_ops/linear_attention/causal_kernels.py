"""Kernels of causal linear attention: the output, and the three gradients.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.

All four tensors that the kernels write have one form,

    y_i = sum_{j <= i} (a_i . b_j) c_j   or, in reverse,   the sum over j >= i:

    output  a = q    b = k    c = v
    dQ      a = do   b = v    c = k
    dK      a = v    b = do   c = q    in reverse
    dV      a = k    b = q    c = do   in reverse

A program writes one segment of the tokens, chunk by chunk: the scores within a chunk as
they stand, what came before through the state sum_j b_j c_j^T, which for dQ and dK is
the transpose of the one of output and dV. Columns of c are independent and are cut into
tiles, so that wide heads fit. No result of a product is ever transposed: Triton 3.4 to
3.7.0 miscompiles that on Hopper.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..tiles import from_column, head_rows
from .causal_segment import write_segment

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
    write_segment(
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
    grad_initial. initial, grad_final, grad_initial: (B * H, D, E) or None; sums and
    grad_sums of k^T v and q^T do, (B * H, segments, D, E) or None.
    Grid: (B * H * segments * TASKS,).

    Where the three have tiles of one shape and dtype, one code path writes any of them
    and chooses at run time what it reads: a path for each would need memory for the
    tiles of all three, and ptxas would wait for every product of Hopper's (wgmma). D
    and E may differ, and float16 has a gradient of the output in float32: there each
    has a path of its own.
    """
    TASKS: tl.constexpr = 2 * (D // TILE_D) + E // TILE_E
    ONE_PATH: tl.constexpr = D == E and inputs[3].dtype == inputs[0].dtype
    task = tl.program_id(0) % TASKS
    program = (tl.program_id(0) // TASKS).to(tl.int64)
    sequence = program // segments
    index = program % segments
    row, head = sequence // heads, sequence % heads
    if pads is not None:
        pads += row * length
    rows = (
        head_rows(inputs[0], strides[0], row, head),
        head_rows(inputs[1], strides[1], row, head),
        head_rows(inputs[2], strides[2], row, head),
        head_rows(inputs[3], strides[3], row, head),
        head_rows(grads[0], strides[4], row, head),
        head_rows(grads[1], strides[5], row, head),
        head_rows(grads[2], strides[6], row, head),
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
    outside = initial
    present = gradient == 0
    if grad_final is not None:
        if initial is not None:
            outside = _pick(gradient, WHICH, initial, grad_final, grad_final)
            present = True
        else:
            outside = grad_final
            present = gradient > 0
    if sums is not None:
        sums = _pick(gradient, WHICH, sums, grad_sums, grad_sums)
    write_segment(
        (
            _pick_rows(gradient, WHICH, do, v, k),
            _pick_rows(gradient, WHICH, v, do, q),
            from_column(_pick_rows(gradient, WHICH, k, q, do), column),
            from_column(_pick_rows(gradient, WHICH, dq, dk, dv), column),
        ),
        gradient > 0,
        gradient < 2,
        pads,
        outside,
        present,
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
