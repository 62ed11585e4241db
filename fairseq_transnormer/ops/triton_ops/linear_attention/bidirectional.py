"""Linear attention without a causal mask in Triton: o = q (K^T V).

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.

The four tensors that the kernels write have one form, y_i = a_i S:

output  a = phi(q)   S = sum_j phi(k_j) v_j^T
dQ      a = do       S transposed                         times phi'(q)
dK      a = v        R transposed, R = sum_i phi(q_i) do_i^T   times phi'(k)
dV      a = phi(k)   R

One launch for the sums of the segments and one for the rows, forward as backward.

NORMALIZE: y = a S / max(t, eps) with t = a . z, z = sum_j phi(k_j), beside S as one
more column. Then du = do / max(t, eps) stands for do, and with the gradient g of t
dQ has g_i z more in each row, dK sum_i g_i phi(q_i).
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
    required,
    strides,
    with_near_tokens,
)
from ..tiles import (
    add_states,
    centred,
    from_column,
    head_rows,
    inside_rows,
    kept_rows,
    load_tile,
    mixed_dot,
    state_offsets,
    store_tile,
)
from .normalizer import normalizer_gradients
from .options import (
    WIDEST_TILE,
    backward_tiles,
    empty_grads,
    launch_options,
    rows_of_a_program,
    sums_segment,
)
from .sums import segment_sums


@triton.jit(do_not_specialize=["length", "heads", "segments", "parts", "part"])
def bidirectional_forward_kernel(
    query,
    output,
    rest,
    score_sums,
    sums,
    vectors,
    strides,
    length,
    heads,
    segments,
    parts,
    part,
    eps,
    D: tl.constexpr,
    E: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PHI: tl.constexpr,
    NORMALIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """strides: of query and output. sums: (B * H, segments, D, E).

    NORMALIZE: vectors, the sums of phi(k), (B * H, segments, D); score_sums, where t
    goes, (B * H, N); rest, where what rounding takes off the output goes, or None, with
    its strides the last.
    parts of ``part`` queries each. Grid: (B * H * parts, E / TILE).
    """
    program = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE
    sequence = program // parts
    row, head = sequence // heads, sequence % heads
    first = (program % parts) * part
    if rest is not None:
        rest = from_column(head_rows(rest, strides[2], row, head), column)
    _write_rows(
        head_rows(query, strides[0], row, head),
        from_column(head_rows(output, strides[1], row, head), column),
        None,
        rest,
        None,
        sums + sequence * segments * D * E,
        vectors,
        score_sums,
        sequence,
        eps,
        column,
        segments,
        first,
        first + part,
        length,
        WIDTH=D,
        FULL=E,
        TILE=TILE,
        CHUNK=CHUNK,
        PHI=PHI,
        NORMALIZE=NORMALIZE,
        PRECISION=PRECISION,
    )


@triton.jit(
    do_not_specialize=[
        "query_length",
        "key_length",
        "heads",
        "segments",
        "grad_segments",
        "parts",
        "part",
    ]
)
def bidirectional_backward_kernel(
    inputs,
    grads,
    pads,
    sums,
    grad_sums,
    vectors,
    grad_vectors,
    score_grads,
    strides,
    query_length,
    key_length,
    heads,
    segments,
    grad_segments,
    parts,
    part,
    D: tl.constexpr,
    E: tl.constexpr,
    TILE_D: tl.constexpr,
    TILE_E: tl.constexpr,
    CHUNK: tl.constexpr,
    PHI: tl.constexpr,
    NORMALIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """inputs: query, key, value and the output's gradient.

    grads: of query, key and value; strides: of all seven. sums: (B * H, segments, D, E)
    of S; grad_sums: (B * H, grad_segments, D, E) of R. NORMALIZE: vectors and
    grad_vectors, what stands beside them, without E; score_grads, g, (B * H, N).
    Grid: (B * H * parts * TASKS,), the tasks of a part next to each other in time.
    """
    TASKS: tl.constexpr = 2 * (D // TILE_D) + E // TILE_E
    task = tl.program_id(0) % TASKS
    program = (tl.program_id(0) // TASKS).to(tl.int64)
    sequence = program // parts
    first = (program % parts) * part
    row, head = sequence // heads, sequence % heads
    query, key, value, grad_output = inputs
    grad_query, grad_key, grad_value = grads
    q_strides, k_strides, v_strides, do_strides = strides[:4]
    dq_strides, dk_strides, dv_strides = strides[4:]
    sums += sequence * segments * D * E
    grad_sums += sequence * grad_segments * D * E
    if pads is not None:
        pads += row * key_length
    if task < D // TILE_D:
        column = task * TILE_D
        _write_rows(
            head_rows(grad_output, do_strides, row, head),
            from_column(head_rows(grad_query, dq_strides, row, head), column),
            from_column(head_rows(query, q_strides, row, head), column),
            None,
            None,
            sums,
            vectors,
            score_grads,
            sequence,
            0.0,
            column,
            segments,
            first,
            first + part,
            query_length,
            WIDTH=E,
            FULL=D,
            TILE=TILE_D,
            CHUNK=CHUNK,
            PHI=PHI,
            NORMALIZE=NORMALIZE,
            PRECISION=PRECISION,
        )
    elif task < 2 * (D // TILE_D):
        column = (task - D // TILE_D) * TILE_D
        _write_rows(
            head_rows(value, v_strides, row, head),
            from_column(head_rows(grad_key, dk_strides, row, head), column),
            from_column(head_rows(key, k_strides, row, head), column),
            None,
            pads,
            grad_sums,
            grad_vectors,
            None,
            sequence,
            0.0,
            column,
            grad_segments,
            first,
            first + part,
            key_length,
            WIDTH=E,
            FULL=D,
            TILE=TILE_D,
            CHUNK=CHUNK,
            PHI=PHI,
            NORMALIZE=NORMALIZE,
            PRECISION=PRECISION,
        )
    else:
        column = (task - 2 * (D // TILE_D)) * TILE_E
        _write_rows(
            head_rows(key, k_strides, row, head),
            from_column(head_rows(grad_value, dv_strides, row, head), column),
            None,
            None,
            pads,
            grad_sums,
            None,
            None,
            sequence,
            0.0,
            column,
            grad_segments,
            first,
            first + part,
            key_length,
            WIDTH=D,
            FULL=E,
            TILE=TILE_E,
            CHUNK=CHUNK,
            PHI=PHI,
            NORMALIZE=NORMALIZE,
            PRECISION=PRECISION,
        )


@triton.jit
def _write_rows(
    a,
    y,
    mapped,
    rest,
    pads,
    sums,
    vectors,
    scores,
    sequence,
    eps,
    column,
    segments,
    first,
    last,
    length,
    WIDTH: tl.constexpr,
    FULL: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    PHI: tl.constexpr,
    NORMALIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write rows first ... last - 1 of y; S is the sum of sums (segments, D, E).

    a, y: rows; y from ``column`` on. mapped: rows of q or k where y is their gradient,
        else None; there S is stored transposed. rest: of what rounding takes off y, or
        None.
    vectors: for NORMALIZE, their sum z is for the output as wide as a, and gives t; for
        dQ and dK it has a tile of y's columns, and is added with the weights g or 1.
    scores: t to be written, or g, or None for 1.
    WIDTH, FULL: of a and of y.
    """
    TRANSPOSED: tl.constexpr = mapped is not None
    if TRANSPOSED:
        # added up as it stands, so that loads are wide
        offsets = column * WIDTH + state_offsets(TILE, WIDTH, WIDTH)
        state = tl.zeros((TILE, WIDTH), tl.float32)
    else:
        offsets = column + state_offsets(WIDTH, TILE, FULL)
        state = tl.zeros((WIDTH, TILE), tl.float32)
    state = add_states(state, sums, 0, segments, offsets, WIDTH * FULL)
    if TRANSPOSED:
        state = tl.trans(state)
    OUTPUT: tl.constexpr = NORMALIZE and vectors is not None and not TRANSPOSED
    if NORMALIZE and vectors is not None:
        SIZE: tl.constexpr = FULL if TRANSPOSED else WIDTH
        columns = tl.arange(0, WIDTH)
        if TRANSPOSED:
            columns = column + tl.arange(0, TILE)
        vectors += sequence * segments * SIZE + columns
        vector = tl.load(vectors)
        for other in range(1, segments):
            vector += tl.load(vectors + other * SIZE)
        if TRANSPOSED:
            state, centre = centred(state, vector, 1)
        else:
            state, centre = centred(state, vector, 0)
    for start in range(first, tl.minimum(last, length), CHUNK):
        inside = inside_rows(start, length, CHUNK)
        keep = kept_rows(start, length, pads, CHUNK)
        tokens = sequence * length + start + tl.arange(0, CHUNK)
        a_tile = load_tile(a, start, keep, not TRANSPOSED, CHUNK, WIDTH, PHI)
        tile = tl.zeros((CHUNK, TILE), tl.float32)
        if NORMALIZE and TRANSPOSED:
            weight = tl.sum(a_tile.to(tl.float32) * centre[None, :], 1)
            if scores is not None:
                weight += tl.load(scores + tokens, mask=inside, other=0.0)
            else:
                weight += 1.0
            tile += weight[:, None] * vector[None, :]
        if OUTPUT:
            total = tl.sum(a_tile.to(tl.float32) * vector[None, :], 1)
            tile += total[:, None] * centre[None, :]
        tile = mixed_dot(a_tile, state, tile, PRECISION)
        if OUTPUT:
            tile /= tl.maximum(total, eps)[:, None]
            tl.store(scores + tokens, total, mask=inside & (column == 0))
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
        store_tile(tile, y, start, inside, keep, mapped, TRANSPOSED, CHUNK, TILE, PHI)


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pads: Tensor | None,
    feature_map: str,
    eps: float | None,
    needs_grad: bool,
) -> tuple[Tensor | None, ...]:
    """The output; then what the backward pass reads.

    That is the segments' sums of phi(k)^T v and, with eps, the smallest divisor of the
    sum normaliser, of phi(k), the sums of the scores, (B * H, N), and, if it
    ``needs_grad``, what rounding took off the output, as it; else None.
    """
    batch, length, heads, width = query.shape
    value_width = value.shape[-1]
    normalize = eps is not None
    options = launch_options("bidirectional forward", query, value, normalize=normalize)
    segment = sums_segment(key, value)
    sums, vectors = segment_sums(
        key, value, pads, feature_map, segment, vectors=normalize
    )
    dtype = query.dtype if normalize else unscaled_output_dtype(query.dtype)
    output = empty_rows(query, length, value_width, dtype)
    score_sums = rest = None
    if normalize and needs_grad and dtype != torch.float32:
        rest = torch.empty_like(output)
    strided = (query, output) + (() if rest is None else (rest,))
    if normalize:
        score_sums = torch.empty(
            (batch * heads, length), dtype=torch.float32, device=query.device
        )
    tile = min(value_width, WIDEST_TILE)
    tiles = value_width // tile
    part = rows_of_a_program(query, tiles, options["CHUNK"])
    parts = triton.cdiv(length, part)
    launch(
        bidirectional_forward_kernel,
        (batch * heads * parts, tiles),
        query,
        output,
        rest,
        score_sums,
        sums,
        vectors,
        strides(strided),
        length,
        heads,
        sums.shape[1],
        parts,
        part,
        eps if normalize else 0.0,
        D=width,
        E=value_width,
        TILE=tile,
        PHI=feature_map,
        NORMALIZE=normalize,
        **options,
    )
    return output, sums, vectors, score_sums, rest


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad_output: Tensor,
    pads: Tensor | None,
    output: Tensor | None,
    sums: Tensor,
    vectors: Tensor | None,
    score_sums: Tensor | None,
    rest: Tensor | None,
    feature_map: str,
    eps: float | None,
) -> tuple[Tensor, ...]:
    """Gradients of query, key and value.

    output, vectors, score_sums, rest: what _forward returned, with eps alone.
    """
    batch, length, heads, width = query.shape
    value_width = value.shape[-1]
    normalize = eps is not None
    options = launch_options(
        "bidirectional backward", query, value, normalize=normalize
    )
    grad_output = with_near_tokens(grad_output)
    score_grads = None
    if eps is not None:
        grad_output, score_grads = normalizer_gradients(
            grad_output, required(output), rest, required(score_sums), eps
        )
    else:
        vectors = None
    grad_sums, grad_vectors = segment_sums(
        query,
        grad_output,
        None,
        feature_map,
        sums_segment(query, grad_output),
        vectors=normalize,
        weights=score_grads,
    )
    grads = empty_grads(query, key, value)
    longer = query if length >= key.shape[1] else key
    tiles, tasks = backward_tiles(width, value_width)
    part = rows_of_a_program(longer, tasks, options["CHUNK"])
    parts = triton.cdiv(longer.shape[1], part)
    launch(
        bidirectional_backward_kernel,
        (batch * heads * parts * tasks,),
        (query, key, value, grad_output),
        tuple(grads),
        pads,
        sums,
        grad_sums,
        vectors,
        grad_vectors,
        score_grads,
        strides((query, key, value, grad_output, *grads)),
        length,
        key.shape[1],
        heads,
        sums.shape[1],
        grad_sums.shape[1],
        parts,
        part,
        D=width,
        E=value_width,
        PHI=feature_map,
        NORMALIZE=normalize,
        **tiles,
        **options,
    )
    return tuple(grads)


def _save(ctx, arguments, outputs):
    query, key, value, pads, ctx.feature_map, ctx.eps, _ = arguments
    output = None if ctx.eps is None else outputs[0]
    ctx.save_for_backward(query, key, value, pads, output, *outputs[1:])


def _gradients(ctx, backward, grad_output):
    query, key, value, *saved = ctx.saved_tensors
    grads = backward(query, key, value, grad_output, *saved, ctx.feature_map, ctx.eps)
    return *grads, None, None, None, None


# arguments: as of _forward, with contiguous rows; returns the output alone
bidirectional_linear_attention = differentiable(
    "bidirectional_linear_attention",
    _forward,
    "(Tensor query, Tensor key, Tensor value, Tensor? pads, str feature_map, "
    "float? eps, bool needs_grad) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _backward,
    "(Tensor query, Tensor key, Tensor value, Tensor grad_output, Tensor? pads, "
    "Tensor? output, Tensor sums, Tensor? vectors, Tensor? score_sums, "
    "Tensor? rest, str feature_map, float? eps) -> (Tensor, Tensor, Tensor)",
    save=_save,
    gradients=_gradients,
    results=1,
)
