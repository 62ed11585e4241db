"""A segment of causal linear attention, inside a kernel.

All four tensors that the kernels write have one form,

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

from .linear_attention_tiles import load_tile, mixed_dot, state_offsets, store_tile


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
    """Write a chunk of y; returns the state after it (ADVANCE)."""
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
def write_segment(
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
    total: where the state after all tokens goes, or None.
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
