"""Inside the causal kernels: one segment of one of their tensors, chunk by chunk.

Letters, and what a, b, c, y, t and g are: ``causal_kernels``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..tiles import (
    add_states,
    as_multiplied,
    centred,
    inside_rows,
    kept_rows,
    load_tile,
    mixed_dot,
    some_chunks,
    state_offsets,
    store_tile,
)


@triton.jit
def write_segment(
    rows,
    way,
    pads,
    outside,
    present,
    sums,
    total,
    totals,
    outside_vector,
    has_vector,
    vectors,
    total_vector,
    totals_vector,
    scores_at,
    eps,
    column,
    sequence,
    index,
    lengths,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PHI: tl.constexpr,
    SHORT: tl.constexpr,
    NORMALIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write segment ``index`` of y, as the file's head says.

    rows: of a, b, c, y, and of q or k where y is their gradient, else None; of what
        rounding takes off y, or None. All but a and b from ``column`` on.
    way: whether it goes in reverse; whether y is the output or dV; whether it is dQ or
        dK, whose states are stored transposed.
    outside, present: the state that the tokens start from, None for zero, and whether
        this y has it.
    sums: sum_j b_j c_j^T of each segment, None where there is one segment, and where
        SHORT: there a segment is a chunk, and what came before is summed up again from
        b and c.
    total, totals: where the state after all tokens goes, or None, and whether this y
        writes it.
    outside_vector, vectors, total_vector, totals_vector: the same of the vectors;
        has_vector: whether this y has one.
    scores_at: t to be written, or g.
    lengths: tokens, segments, and tokens of a segment.
    WIDTH, FULL: of b and of c.
    """
    reverse, _, transposed = way
    length, segments, segment = lengths
    SIZE: tl.constexpr = WIDTH * FULL
    if outside is not None:
        outside += sequence * SIZE
    if sums is not None:
        sums += sequence * segments * SIZE
    first = index * segment
    low = tl.where(reverse, index + 1, 0)
    high = tl.where(reverse, segments, index)
    if transposed:
        state = _states_before(
            outside, present, sums, low, high, column, WIDTH, FULL, TILE, True
        )
    else:
        state = _states_before(
            outside, present, sums, low, high, column, WIDTH, FULL, TILE, False
        )
    if NORMALIZE:
        vector = _vectors_before(
            outside_vector,
            present & has_vector,
            vectors,
            has_vector,
            sequence,
            segments,
            low,
            high,
            rows[4],
            column,
            WIDTH,
            FULL,
            TILE,
        )
    else:
        vector = 0.0
    if SHORT:
        stop = tl.minimum(high * CHUNK, length)
        for chunk in range(0, some_chunks(low * CHUNK, stop, length, CHUNK)):
            start = (low + chunk) * CHUNK
            b_tile, c_tile = _load_summed(
                rows, way, pads, start, stop, WIDTH, TILE, CHUNK, PHI
            )
            state = mixed_dot(tl.trans(b_tile), c_tile, state, PRECISION)
            if NORMALIZE:
                shifts = _score_shifts(rows[4], way, scores_at, start, stop, CHUNK)
                vector += _weighted_sum(rows[4], b_tile, c_tile, shifts[1])
        state, vector = _write_chunk(
            rows,
            way,
            pads,
            first,
            length,
            state,
            vector,
            scores_at,
            eps,
            totals_vector,
            WIDTH=WIDTH,
            TILE=TILE,
            CHUNK=CHUNK,
            PHI=PHI,
            ADVANCE=total is not None,
            NORMALIZE=NORMALIZE,
            PRECISION=PRECISION,
        )
    else:
        chunks = some_chunks(first, first + segment, length, CHUNK)
        for chunk in range(0, chunks):
            state, vector = _write_chunk(
                rows,
                way,
                pads,
                first + tl.where(reverse, chunks - 1 - chunk, chunk) * CHUNK,
                length,
                state,
                vector,
                scores_at,
                eps,
                totals_vector,
                WIDTH=WIDTH,
                TILE=TILE,
                CHUNK=CHUNK,
                PHI=PHI,
                ADVANCE=True,
                NORMALIZE=NORMALIZE,
                PRECISION=PRECISION,
            )
    if total is not None:
        is_last = index == tl.where(reverse, 0, segments - 1)
        if totals & is_last:
            offsets = state_offsets(WIDTH, TILE, FULL)
            tl.store(total + sequence * SIZE + column + offsets, state)
        if NORMALIZE:
            if totals_vector & is_last:
                _store_vector(
                    total_vector, sequence, rows[4], column, vector, WIDTH, FULL, TILE
                )


@triton.jit
def _states_before(
    outside,
    present,
    sums,
    low,
    high,
    column,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """outside and the sums of segments low ... high - 1: (WIDTH, TILE), float32.

    TRANSPOSED: they are stored as (FULL, WIDTH). They are added up as they stand, so
    that loads are wide.
    """
    if TRANSPOSED:
        offsets = column * WIDTH + state_offsets(TILE, WIDTH, WIDTH)
        state = tl.zeros((TILE, WIDTH), tl.float32)
    else:
        offsets = column + state_offsets(WIDTH, TILE, FULL)
        state = tl.zeros((WIDTH, TILE), tl.float32)
    if outside is not None:
        state += tl.load(outside + offsets, mask=present, other=0.0)
    if sums is not None:
        state = add_states(state, sums, low, high, offsets, WIDTH * FULL)
    if TRANSPOSED:
        state = tl.trans(state)
    return state


@triton.jit
def _vectors_before(
    outside,
    present,
    vectors,
    has_vector,
    sequence,
    segments,
    low,
    high,
    mapped,
    column,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
):
    """outside and the sum of vectors low ... high - 1, float32.

    For the output all of it, which is as wide as b; else a tile as c's.
    """
    if mapped is None:
        SIZE: tl.constexpr = WIDTH
        offsets = tl.arange(0, WIDTH)
        vector = tl.zeros((WIDTH,), tl.float32)
    else:
        SIZE: tl.constexpr = FULL  # type: ignore[no-redef]
        offsets = column + tl.arange(0, TILE)
        vector = tl.zeros((TILE,), tl.float32)
    if outside is not None:
        vector += tl.load(outside + sequence * SIZE + offsets, mask=present, other=0.0)
    if vectors is not None:
        vectors += sequence * segments * SIZE
        for other in range(low, high):
            vector += tl.load(
                vectors + other * SIZE + offsets, mask=has_vector, other=0.0
            )
    return vector


@triton.jit
def _store_vector(
    total,
    sequence,
    mapped,
    column,
    vector,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
):
    """The vector after all tokens, to where _vectors_before would look for it."""
    if mapped is None:
        tl.store(total + sequence * WIDTH + tl.arange(0, WIDTH), vector)
    else:
        tl.store(total + sequence * FULL + column + tl.arange(0, TILE), vector)


@triton.jit
def _score_shifts(mapped, way, score_grads, start, length, CHUNK: tl.constexpr):
    """Two vectors whose outer product is added to the scores of a gradient.

    The second is also the weights with which c is summed up. None for the output.
    """
    if mapped is None:
        # numbers: Triton 3.6 has no None in a tuple that a function returns
        return 0.0, 0.0
    else:
        reverse, plain, _ = way
        keep = inside_rows(start, length, CHUNK)
        tokens = start + tl.arange(0, CHUNK)
        grads = tl.load(score_grads + tokens, mask=keep, other=0.0)
        # dQ: g and 1; dK: 1 and g; dV: 0 and 0
        rows = tl.where(plain, 0.0, tl.where(reverse, 1.0, grads))
        columns = tl.where(plain, 0.0, tl.where(reverse, grads, 1.0))
        return rows, columns


@triton.jit
def _weighted_sum(mapped, b_tile, c_tile, weights):
    """What a chunk adds to the vector: the sum of b, or of c by the weights."""
    if mapped is None:
        return tl.sum(b_tile.to(tl.float32), 0)
    else:
        return tl.sum(weights[:, None] * c_tile.to(tl.float32), 0)


@triton.jit
def _write_chunk(
    rows,
    way,
    pads,
    start,
    length,
    state,
    vector,
    scores_at,
    eps,
    writes_scores,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PHI: tl.constexpr,
    ADVANCE: tl.constexpr,
    NORMALIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write a chunk of y; returns the state and the vector after it (ADVANCE)."""
    a, _, _, y, mapped, rest = rows
    reverse, plain, transposed = way
    inside = inside_rows(start, length, CHUNK)
    keep = inside
    if pads is not None:
        # in reverse a and y belong to keys and values
        keep = tl.where(reverse, kept_rows(start, length, pads, CHUNK), inside)
    a_tile = load_tile(a, start, keep, plain, CHUNK, WIDTH, PHI)
    b_tile, c_tile = _load_summed(
        rows, way, pads, start, length, WIDTH, TILE, CHUNK, PHI
    )
    index = tl.arange(0, CHUNK)
    index = tl.where(reverse, CHUNK - 1 - index, index)
    visible = index[:, None] >= index[None, :]
    scores = tl.zeros((CHUNK, CHUNK), tl.float32)
    tile = tl.zeros((CHUNK, TILE), tl.float32)
    before = state
    if NORMALIZE:
        shift, weights = _score_shifts(mapped, way, scores_at, start, length, CHUNK)
        if mapped is None:
            before, centre = centred(state, vector, 0)
            sums = tl.sum(a_tile.to(tl.float32) * vector[None, :], 1)
            tile += sums[:, None] * centre[None, :]
        else:
            scores += shift[:, None] * weights[None, :]
            before, centre = centred(state, vector, 1)
            shift += tl.sum(a_tile.to(tl.float32) * centre[None, :], 1)
            tile += shift[:, None] * vector[None, :]
    scores = mixed_dot(a_tile, tl.trans(b_tile), scores, PRECISION)
    scores = tl.where(visible, scores, 0.0)
    if NORMALIZE and mapped is None:
        # the weights of an average are those that are summed up
        scores = as_multiplied(scores, c_tile)
        sums += tl.sum(scores, 1)
    tile = mixed_dot(a_tile, before, tile, PRECISION)
    tile = mixed_dot(scores, c_tile, tile, PRECISION)
    if NORMALIZE and mapped is None:
        tile /= tl.maximum(sums, eps)[:, None]
        tokens = start + tl.arange(0, CHUNK)
        tl.store(scores_at + tokens, sums, mask=inside & writes_scores)
        if rest is not None:
            store_tile(
                tile - tile.to(y[0].dtype.element_ty).to(tl.float32),
                rest,
                start,
                inside,
                keep,
                None,
                False,
                CHUNK,
                TILE,
                PHI,
            )
    if ADVANCE:
        state = mixed_dot(tl.trans(b_tile), c_tile, state, PRECISION)
        if NORMALIZE:
            vector += _weighted_sum(mapped, b_tile, c_tile, weights)
    store_tile(tile, y, start, inside, keep, mapped, transposed, CHUNK, TILE, PHI)
    return state, vector


@triton.jit
def _load_summed(
    rows,
    way,
    pads,
    start,
    length,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PHI: tl.constexpr,
):
    """A chunk of b and c. Forwards these are keys and values, and pads are zero."""
    _, b, c, _, _, _ = rows
    reverse, plain, transposed = way
    keep = inside_rows(start, length, CHUNK)
    if pads is not None:
        keep = tl.where(reverse, keep, kept_rows(start, length, pads, CHUNK))
    b_tile = load_tile(b, start, keep, plain, CHUNK, WIDTH, PHI)
    c_tile = load_tile(c, start, keep, transposed, CHUNK, TILE, PHI)
    return b_tile, c_tile
