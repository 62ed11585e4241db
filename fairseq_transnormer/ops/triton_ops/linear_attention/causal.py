"""Causal linear attention in Triton: its kernels, their launches, and the gradients.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.

All four tensors that the kernels write have one form,

    y_i = sum_{j <= i} (a_i . b_j) c_j   or, in reverse,   the sum over j >= i:

    output  a = phi(q)   b = phi(k)   c = v
    dQ      a = do       b = v        c = phi(k)   times phi'(q)
    dK      a = v        b = do       c = phi(q)   times phi'(k)   in reverse
    dV      a = phi(k)   b = phi(q)   c = do                       in reverse

A program writes one segment of the tokens, chunk by chunk: the scores within a chunk as
they stand, what came before through the state sum_j b_j c_j^T, which for dQ and dK is
the transpose of the one of output and dV. Columns of c are independent and are cut into
tiles, so that wide heads fit. No result of a product is ever transposed: Triton 3.4 to
3.7.0 miscompiles that on Hopper.

Up to SHORT_LENGTH tokens: one launch forward and one backward; a program writes one
chunk and sums up what came before it again. Longer: one launch for the states of the
segments and one that walks through the segments, forward as backward.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import unscaled_output_dtype
from ..launching import (
    differentiable,
    empty_rows,
    launch,
    strides,
    with_near_tokens,
)
from ..tiles import (
    from_column,
    head_rows,
    load_tile,
    mixed_dot,
    state_offsets,
    store_tile,
)
from .options import (
    WIDEST_TILE,
    backward_tiles,
    causal_form,
    empty_grads,
    launch_options,
    segment_length,
)
from .sums import segment_sums


@triton.jit(do_not_specialize=["length", "segments", "segment"])
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
    PHI: tl.constexpr,
    SHORT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """strides: of query, key, value, output. states: initial, sums and final.

    initial, final: (B * H, D, E) or None; sums of phi(k)^T v, (B * H, segments, D, E)
    or None. Grid: (B * H * segments, E / TILE).
    """
    program = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE
    sequence = program // segments
    row, head = sequence // heads, sequence % heads
    # the last segments of a short sequence take longest, so they start first
    index = segments - 1 - program % segments
    query_strides, key_strides, value_strides, output_strides = strides
    if pads is not None:
        pads += row * length
    _write_segment(
        head_rows(query, query_strides, row, head),
        head_rows(key, key_strides, row, head),
        from_column(head_rows(value, value_strides, row, head), column),
        from_column(head_rows(output, output_strides, row, head), column),
        None,
        pads,
        states,
        column,
        sequence,
        index,
        (length, segments, segment),
        WIDTH=D,
        FULL=E,
        TILE=TILE,
        CHUNK=CHUNK,
        PHI=PHI,
        REVERSE=False,
        SHORT=SHORT,
        PRECISION=PRECISION,
    )


@triton.jit(do_not_specialize=["length", "segments", "segment"])
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
    PHI: tl.constexpr,
    SHORT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Programs of dQ, dK and dV next to each other in time: they share their tokens.

    inputs: query, key, value and the output's gradient; grads: of query, key and value;
    strides: of all seven. before: initial and sums; after: grad_final, grad_sums and
    grad_initial. initial, grad_final, grad_initial: (B * H, D, E) or None; sums and
    grad_sums of phi(k)^T v and phi(q)^T do, (B * H, segments, D, E) or None.
    Grid: (B * H * segments * TASKS,).
    """
    TASKS: tl.constexpr = 2 * (D // TILE_D) + E // TILE_E
    task = tl.program_id(0) % TASKS
    program = (tl.program_id(0) // TASKS).to(tl.int64)
    sequence = program // segments
    index = program % segments
    row, head = sequence // heads, sequence % heads
    query, key, value, grad_output = inputs
    grad_query, grad_key, grad_value = grads
    q_strides, k_strides, v_strides, do_strides = strides[:4]
    dq_strides, dk_strides, dv_strides = strides[4:]
    initial, sums = before
    grad_final, grad_sums, grad_initial = after
    q = head_rows(query, q_strides, row, head)
    k = head_rows(key, k_strides, row, head)
    v = head_rows(value, v_strides, row, head)
    do = head_rows(grad_output, do_strides, row, head)
    if pads is not None:
        pads += row * length
    if task < D // TILE_D:
        column = task * TILE_D
        _write_segment(
            do,
            v,
            from_column(k, column),
            from_column(head_rows(grad_query, dq_strides, row, head), column),
            from_column(q, column),
            pads,
            (initial, sums, None),
            column,
            sequence,
            index,
            (length, segments, segment),
            WIDTH=E,
            FULL=D,
            TILE=TILE_D,
            CHUNK=CHUNK,
            PHI=PHI,
            REVERSE=False,
            SHORT=SHORT,
            PRECISION=PRECISION,
        )
    elif task < 2 * (D // TILE_D):
        column = (task - D // TILE_D) * TILE_D
        _write_segment(
            v,
            do,
            from_column(q, column),
            from_column(head_rows(grad_key, dk_strides, row, head), column),
            from_column(k, column),
            pads,
            (grad_final, grad_sums, None),
            column,
            sequence,
            index,
            (length, segments, segment),
            WIDTH=E,
            FULL=D,
            TILE=TILE_D,
            CHUNK=CHUNK,
            PHI=PHI,
            REVERSE=True,
            SHORT=SHORT,
            PRECISION=PRECISION,
        )
    else:
        column = (task - 2 * (D // TILE_D)) * TILE_E
        _write_segment(
            k,
            q,
            from_column(do, column),
            from_column(head_rows(grad_value, dv_strides, row, head), column),
            None,
            pads,
            (grad_final, grad_sums, grad_initial),
            column,
            sequence,
            index,
            (length, segments, segment),
            WIDTH=D,
            FULL=E,
            TILE=TILE_E,
            CHUNK=CHUNK,
            PHI=PHI,
            REVERSE=True,
            SHORT=SHORT,
            PRECISION=PRECISION,
        )


@triton.jit
def _write_segment(
    a,
    b,
    c,
    y,
    mapped,
    pads,
    states,
    column,
    sequence,
    index,
    lengths,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PHI: tl.constexpr,
    REVERSE: tl.constexpr,
    SHORT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write segment ``index`` of y, as the file's head says.

    a, b, c, y: rows; c and y from ``column`` on. mapped: rows of q or k where y is
        their gradient, else None; there the states are stored transposed.
    states: outside, the state that the tokens start from, None for zero; sums,
        sum_j b_j c_j^T of each segment, None where there is one segment, and where
        SHORT: there a segment is a chunk, and what came before is summed up again from
        b and c; total, where the state after all tokens goes, or None.
    lengths: tokens, segments, and tokens of a segment.
    WIDTH, FULL: of b and of c.
    """
    outside, sums, total = states
    length, segments, segment = lengths
    TRANSPOSED: tl.constexpr = mapped is not None
    SIZE: tl.constexpr = WIDTH * FULL
    shift = column * WIDTH if TRANSPOSED else column
    outside = None if outside is None else outside + shift
    sums = None if sums is None else sums + shift
    total = None if total is None else total + shift
    offsets = state_offsets(WIDTH, FULL, TILE, TRANSPOSED)
    state = tl.zeros((WIDTH, TILE), tl.float32)
    if outside is not None:
        state += tl.load(outside + sequence * SIZE + offsets)
    first = index * segment
    if SHORT:
        if REVERSE:
            low, high = first + CHUNK, length
        else:
            low, high = 0, first
        for start in range(low, high, CHUNK):
            b_tile, c_tile = _load_summed(
                b, c, mapped, start, length, pads, WIDTH, TILE, CHUNK, PHI, REVERSE
            )
            state = mixed_dot(tl.trans(b_tile), c_tile, state, PRECISION)
        state = _write_chunk(
            a,
            b,
            c,
            y,
            mapped,
            first,
            length,
            pads,
            state,
            WIDTH=WIDTH,
            TILE=TILE,
            CHUNK=CHUNK,
            PHI=PHI,
            REVERSE=REVERSE,
            ADVANCE=total is not None,
            PRECISION=PRECISION,
        )
    else:
        if sums is not None:
            if REVERSE:
                low, high = index + 1, segments
            else:
                low, high = 0, index
            sums += sequence * segments * SIZE
            for other in range(low, high):
                state += tl.load(sums + other * SIZE + offsets)
        chunks = tl.cdiv(tl.minimum(segment, length - first), CHUNK)
        for chunk in range(0, chunks):
            position = chunks - 1 - chunk if REVERSE else chunk
            state = _write_chunk(
                a,
                b,
                c,
                y,
                mapped,
                first + position * CHUNK,
                length,
                pads,
                state,
                WIDTH=WIDTH,
                TILE=TILE,
                CHUNK=CHUNK,
                PHI=PHI,
                REVERSE=REVERSE,
                ADVANCE=True,
                PRECISION=PRECISION,
            )
    if total is not None:
        last = 0 if REVERSE else segments - 1
        if index == last:
            tl.store(total + sequence * SIZE + offsets, state)


@triton.jit
def _write_chunk(
    a,
    b,
    c,
    y,
    mapped,
    start,
    length,
    pads,
    state,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PHI: tl.constexpr,
    REVERSE: tl.constexpr,
    ADVANCE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write a chunk of y; returns the state after it (ADVANCE)."""
    a_phi: tl.constexpr = PHI if mapped is None else "identity"
    # in reverse a and y belong to keys and values
    own_pads = pads if REVERSE else None
    a_tile = load_tile(a, start, length, own_pads, CHUNK, WIDTH, a_phi)
    b_tile, c_tile = _load_summed(
        b, c, mapped, start, length, pads, WIDTH, TILE, CHUNK, PHI, REVERSE
    )
    rows = tl.arange(0, CHUNK)[:, None]
    columns = tl.arange(0, CHUNK)[None, :]
    visible = rows <= columns if REVERSE else rows >= columns
    scores = tl.zeros((CHUNK, CHUNK), tl.float32)
    scores = mixed_dot(a_tile, tl.trans(b_tile), scores, PRECISION)
    scores = tl.where(visible, scores, 0.0)
    tile = tl.zeros((CHUNK, TILE), tl.float32)
    tile = mixed_dot(a_tile, state, tile, PRECISION)
    tile = mixed_dot(scores, c_tile, tile, PRECISION)
    if ADVANCE:
        state = mixed_dot(tl.trans(b_tile), c_tile, state, PRECISION)
    store_tile(tile, y, start, length, own_pads, mapped, CHUNK, TILE, PHI)
    return state


@triton.jit
def _load_summed(
    b,
    c,
    mapped,
    start,
    length,
    pads,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PHI: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """A chunk of b and c. Forwards these are keys and values, and pads are zero."""
    b_phi: tl.constexpr = PHI if mapped is None else "identity"
    c_phi: tl.constexpr = "identity" if mapped is None else PHI
    if REVERSE:
        b_tile = load_tile(b, start, length, None, CHUNK, WIDTH, b_phi)
        c_tile = load_tile(c, start, length, None, CHUNK, TILE, c_phi)
    else:
        b_tile = load_tile(b, start, length, pads, CHUNK, WIDTH, b_phi)
        c_tile = load_tile(c, start, length, pads, CHUNK, TILE, c_phi)
    return b_tile, c_tile


def _plan(query: Tensor, value: Tensor) -> tuple[bool, int, int, dict]:
    """Whether the form is the short one, segment, segments and launch options."""
    length = query.shape[1]
    form = causal_form(length)
    options = launch_options(form, query, value)
    short = form == "short"
    segment = options["CHUNK"] if short else segment_length(query)
    return short, segment, triton.cdiv(length, segment), options


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    initial: Tensor | None,
    pads: Tensor | None,
    feature_map: str,
    return_state: bool,
) -> tuple[Tensor | None, ...]:
    """The output; the state after the last token; the segments' sums if any."""
    batch, length, heads, width = query.shape
    value_width = value.shape[-1]
    short, segment, segments, options = _plan(query, value)
    sums = None
    if not short and segments > 1:
        sums = segment_sums(key, value, pads, feature_map, segment, options)
    final = None
    if return_state:
        final = torch.empty(
            (batch, heads, width, value_width),
            dtype=torch.float32,
            device=query.device,
        )
    output = empty_rows(query, length, value_width, unscaled_output_dtype(query.dtype))
    tile = min(value_width, WIDEST_TILE)
    launch(
        causal_forward_kernel,
        (batch * heads * segments, value_width // tile),
        query,
        key,
        value,
        output,
        pads,
        (initial if initial is None else initial.contiguous(), sums, final),
        strides((query, key, value, output)),
        length,
        heads,
        segments,
        segment,
        D=width,
        E=value_width,
        TILE=tile,
        PHI=feature_map,
        SHORT=short,
        **options,
    )
    return output, final, sums


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad_output: Tensor | None,
    grad_final: Tensor | None,
    initial: Tensor | None,
    pads: Tensor | None,
    sums: Tensor | None,
    feature_map: str,
    initial_needs_grad: bool,
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key, value and, where it is needed, of the initial state."""
    batch, length, heads, width = query.shape
    value_width = value.shape[-1]
    short, segment, segments, options = _plan(query, value)
    if grad_output is None:
        dtype = unscaled_output_dtype(query.dtype)
        grad_output = query.new_zeros((*query.shape[:3], value_width), dtype=dtype)
    grad_output = with_near_tokens(grad_output)
    grad_sums = None
    if short or segments == 1:
        sums = None
    else:
        grad_sums = segment_sums(
            query, grad_output, None, feature_map, segment, options
        )
    if initial is not None:
        initial = initial.contiguous()
    grad_initial = torch.empty_like(initial) if initial_needs_grad else None
    grads = empty_grads(query, key, value)
    tiles, tasks = backward_tiles(width, value_width)
    launch(
        causal_backward_kernel,
        (batch * heads * segments * tasks,),
        (query, key, value, grad_output),
        tuple(grads),
        pads,
        (initial, sums),
        (
            grad_final if grad_final is None else grad_final.contiguous(),
            grad_sums,
            grad_initial,
        ),
        strides((query, key, value, grad_output, *grads)),
        length,
        heads,
        segments,
        segment,
        D=width,
        E=value_width,
        PHI=feature_map,
        SHORT=short,
        **tiles,
        **options,
    )
    return *grads, grad_initial


def _save(ctx, arguments, outputs):
    query, key, value, initial, pads, ctx.feature_map, _ = arguments
    ctx.save_for_backward(query, key, value, initial, pads, outputs[2])


def _gradients(ctx, backward, grad_output, grad_final):
    query, key, value, initial, pads, sums = ctx.saved_tensors
    initial_needs_grad = ctx.needs_input_grad[3]
    *grads, grad_initial = backward(
        query,
        key,
        value,
        grad_output,
        grad_final,
        initial,
        pads,
        sums,
        ctx.feature_map,
        initial_needs_grad,
    )
    return *grads, grad_initial if initial_needs_grad else None, None, None, None


# arguments: as of _forward, with contiguous rows; returns output and final state
causal_linear_attention = differentiable(
    "causal_linear_attention",
    _forward,
    "(Tensor query, Tensor key, Tensor value, Tensor? initial, Tensor? pads, "
    "str feature_map, bool return_state) -> (Tensor, Tensor, Tensor)",
    _backward,
    "(Tensor query, Tensor key, Tensor value, Tensor? grad_output, Tensor? grad_final, "
    "Tensor? initial, Tensor? pads, Tensor? sums, str feature_map, "
    "bool initial_needs_grad) -> (Tensor, Tensor, Tensor, Tensor)",
    save=_save,
    gradients=_gradients,
    results=2,
)
