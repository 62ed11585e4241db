"""Kernels of causal linear attention, forward and backward.

All four tensors that these kernels write have one form,

    y_i = sum_{j <= i} (a_i . b_j) c_j   or, in reverse,   the sum over j >= i:

    output  a = phi(q)   b = phi(k)   c = v
    dQ      a = do       b = v        c = phi(k)   times phi'(q)
    dK      a = v        b = do       c = phi(q)   times phi'(k)   in reverse
    dV      a = phi(k)   b = phi(q)   c = do                       in reverse

A program writes one segment of the tokens, chunk by chunk: the scores within a chunk as
they stand, what came before through the state sum_j b_j c_j^T. Columns of c are
independent and are cut into tiles, so that wide heads fit. No result of a product is
ever transposed: Triton 3.4 to 3.7.0 miscompiles that on Hopper.
"""

import triton
import triton.language as tl

from .linear_attention_tiles import (
    head_offset,
    load_tile,
    mixed_dot,
    state_offsets,
    store_tile,
)


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
    """Write a chunk of y; returns the state behind it (ADVANCE)."""
    a_phi: tl.constexpr = PHI if mapped is None else "identity"
    # in reverse a and y belong to keys and values
    own_pads = pads if REVERSE else None
    a_tile = load_tile(a, start, length, own_pads, CHUNK, WIDTH, a_phi)
    b_tile, c_tile = _load_summed(
        b,
        c,
        mapped,
        start,
        length,
        pads,
        WIDTH,
        TILE,
        CHUNK,
        PHI,
        REVERSE,
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
    store_tile(
        tile,
        y,
        start,
        length,
        own_pads,
        mapped,
        CHUNK,
        TILE,
        PHI,
    )
    return state


@triton.jit
def _write_segment(
    a,
    b,
    c,
    y,
    mapped,
    pads,
    outside,
    sums,
    total,
    sequence,
    index,
    length,
    segments,
    segment,
    state_row: tl.constexpr,
    state_column: tl.constexpr,
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

    outside: the state that the tokens start from, None for zero.
    sums: (B * H, segments, D, E), sum_j b_j c_j^T of each segment; None where there is
        one segment, and where SHORT: there a segment is a chunk, and what came before
        is summed up again from b and c.
    total: where the state behind all tokens goes, or None.
    state_row, state_column: strides of a state in b's width and in c's.
    WIDTH, FULL: of b and of c.
    """
    state = tl.zeros((WIDTH, TILE), tl.float32)
    offsets = state_offsets(state_row, state_column, WIDTH, TILE)
    if outside is not None:
        state += tl.load(outside + sequence * WIDTH * FULL + offsets)
    first = index * segment
    if SHORT:
        if REVERSE:
            before, behind = first + CHUNK, length
        else:
            before, behind = 0, first
        for start in range(before, behind, CHUNK):
            b_tile, c_tile = _load_summed(
                b,
                c,
                mapped,
                start,
                length,
                pads,
                WIDTH,
                TILE,
                CHUNK,
                PHI,
                REVERSE,
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
            WIDTH,
            TILE,
            CHUNK,
            PHI,
            REVERSE,
            total is not None,
            PRECISION,
        )
    else:
        if sums is not None:
            if REVERSE:
                before, behind = index + 1, segments
            else:
                before, behind = 0, index
            sums += sequence * segments * WIDTH * FULL
            for other in range(before, behind):
                state += tl.load(sums + other * WIDTH * FULL + offsets)
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
                WIDTH,
                TILE,
                CHUNK,
                PHI,
                REVERSE,
                True,
                PRECISION,
            )
    if total is not None:
        last = 0 if REVERSE else segments - 1
        if index == last:
            tl.store(total + sequence * WIDTH * FULL + offsets, state)


@triton.jit(do_not_specialize=["length", "segments", "segment"])
def causal_forward_kernel(
    query,
    key,
    value,
    output,
    pads,
    initial,
    sums,
    final,
    query_stride_b,
    query_stride_n,
    query_stride_h,
    key_stride_b,
    key_stride_n,
    key_stride_h,
    value_stride_b,
    value_stride_n,
    value_stride_h,
    output_stride_b,
    output_stride_n,
    output_stride_h,
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
    """initial, final: (B * H, D, E) or None. Grid: (B * H * segments, E / TILE)."""
    program = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE
    sequence = program // segments
    # the last segments of a short sequence take longest, so they start first
    index = segments - 1 - program % segments
    query += head_offset(sequence, heads, query_stride_b, query_stride_h)
    key += head_offset(sequence, heads, key_stride_b, key_stride_h)
    value += head_offset(sequence, heads, value_stride_b, value_stride_h) + column
    output += head_offset(sequence, heads, output_stride_b, output_stride_h) + column
    if pads is not None:
        pads += (sequence // heads) * length
    _write_segment(
        (query, query_stride_n),
        (key, key_stride_n),
        (value, value_stride_n),
        (output, output_stride_n),
        None,
        pads,
        None if initial is None else initial + column,
        None if sums is None else sums + column,
        None if final is None else final + column,
        sequence,
        index,
        length,
        segments,
        segment,
        E,
        1,
        D,
        E,
        TILE,
        CHUNK,
        PHI,
        False,
        SHORT,
        PRECISION,
    )


@triton.jit(do_not_specialize=["length", "segments", "segment"])
def causal_backward_kernel(
    query,
    key,
    value,
    grad_output,
    grad_query,
    grad_key,
    grad_value,
    pads,
    initial,
    sums,
    grad_final,
    grad_sums,
    grad_initial,
    query_stride_b,
    query_stride_n,
    query_stride_h,
    key_stride_b,
    key_stride_n,
    key_stride_h,
    value_stride_b,
    value_stride_n,
    value_stride_h,
    grad_output_stride_b,
    grad_output_stride_n,
    grad_output_stride_h,
    grad_query_stride_b,
    grad_query_stride_n,
    grad_query_stride_h,
    grad_key_stride_b,
    grad_key_stride_n,
    grad_key_stride_h,
    grad_value_stride_b,
    grad_value_stride_n,
    grad_value_stride_h,
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
    """Programs of dQ, dK and dV side by side: they read the same tokens.

    initial, grad_final, grad_initial: (B * H, D, E) or None; sums and grad_sums of
    phi(k)^T v and phi(q)^T do, (B * H, segments, D, E) or None.
    Grid: (B * H * segments, 2 D / TILE_D + E / TILE_E).
    """
    program = tl.program_id(0).to(tl.int64)
    task = tl.program_id(1)
    sequence = program // segments
    index = program % segments
    query += head_offset(sequence, heads, query_stride_b, query_stride_h)
    key += head_offset(sequence, heads, key_stride_b, key_stride_h)
    value += head_offset(sequence, heads, value_stride_b, value_stride_h)
    grad_output += head_offset(
        sequence, heads, grad_output_stride_b, grad_output_stride_h
    )
    if pads is not None:
        pads += (sequence // heads) * length
    if task < D // TILE_D:
        column = task * TILE_D
        grad_query += head_offset(
            sequence, heads, grad_query_stride_b, grad_query_stride_h
        )
        _write_segment(
            (grad_output, grad_output_stride_n),
            (value, value_stride_n),
            (key + column, key_stride_n),
            (grad_query + column, grad_query_stride_n),
            (query + column, query_stride_n),
            pads,
            None if initial is None else initial + column * E,
            None if sums is None else sums + column * E,
            None,
            sequence,
            index,
            length,
            segments,
            segment,
            1,
            E,
            E,
            D,
            TILE_D,
            CHUNK,
            PHI,
            False,
            SHORT,
            PRECISION,
        )
    elif task < 2 * (D // TILE_D):
        column = (task - D // TILE_D) * TILE_D
        grad_key += head_offset(sequence, heads, grad_key_stride_b, grad_key_stride_h)
        _write_segment(
            (value, value_stride_n),
            (grad_output, grad_output_stride_n),
            (query + column, query_stride_n),
            (grad_key + column, grad_key_stride_n),
            (key + column, key_stride_n),
            pads,
            None if grad_final is None else grad_final + column * E,
            None if grad_sums is None else grad_sums + column * E,
            None,
            sequence,
            index,
            length,
            segments,
            segment,
            1,
            E,
            E,
            D,
            TILE_D,
            CHUNK,
            PHI,
            True,
            SHORT,
            PRECISION,
        )
    else:
        column = (task - 2 * (D // TILE_D)) * TILE_E
        grad_value += head_offset(
            sequence, heads, grad_value_stride_b, grad_value_stride_h
        )
        _write_segment(
            (key, key_stride_n),
            (query, query_stride_n),
            (grad_output + column, grad_output_stride_n),
            (grad_value + column, grad_value_stride_n),
            None,
            pads,
            None if grad_final is None else grad_final + column,
            None if grad_sums is None else grad_sums + column,
            None if grad_initial is None else grad_initial + column,
            sequence,
            index,
            length,
            segments,
            segment,
            E,
            1,
            D,
            E,
            TILE_E,
            CHUNK,
            PHI,
            True,
            SHORT,
            PRECISION,
        )
