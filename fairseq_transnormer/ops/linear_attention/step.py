"""One token of causal linear attention, with the state updated in place.

Letters: B batch, H heads, D head width of queries and keys, E of values.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..backend import unscaled_output_dtype
from ..kernels.launch import (
    empty_rows,
    in_place,
    launch,
    required,
    strides,
    writable_rows,
    write_back,
)
from ..kernels.tiles import feature_map, from_column, head_rows
from .launch_table import WIDEST_TILE, step_warps


@triton.jit(do_not_specialize=["heads"])
def step_kernel(
    query,
    key,
    value,
    output,
    pads,
    state,
    vector,
    strides,
    heads,
    eps,
    D: tl.constexpr,
    TILE: tl.constexpr,
    PHI: tl.constexpr,
):
    """S += phi(k) v^T, o = phi(q) S, in float32 without tensor cores.

    vector: z of the sum normaliser, or None; then z += phi(k) and o is divided by
    max(phi(q) . z, eps), by one program for a head, so that none reads what another
    has written.
    strides: of query, key, value, output, of the state as (B, D, H, E), and of the
    vector as (B, 1, H, D) if any. pads: (B, 1) or None. Grid: (B * H, E / TILE).
    """
    sequence = tl.program_id(0).to(tl.int64)
    row, head = sequence // heads, sequence % heads
    first = tl.program_id(1) * TILE
    rows = tl.arange(0, D)
    columns = tl.arange(0, TILE)
    query, _ = head_rows(query, strides[0], row, head)
    key, _ = head_rows(key, strides[1], row, head)
    value, _ = from_column(head_rows(value, strides[2], row, head), first)
    output, _ = from_column(head_rows(output, strides[3], row, head), first)
    state, state_stride = from_column(head_rows(state, strides[4], row, head), first)
    q = tl.load(query + rows)
    k = tl.load(key + rows)
    # phi rounds to the inputs' dtype, as it does for longer inputs
    q = feature_map(q.to(tl.float32), PHI).to(q.dtype).to(tl.float32)
    k = feature_map(k.to(tl.float32), PHI).to(k.dtype).to(tl.float32)
    v = tl.load(value + columns).to(tl.float32)
    if pads is not None:
        real = tl.load(pads + row) == 0
        k = tl.where(real, k, 0.0)
        v = tl.where(real, v, 0.0)
    offsets = rows[:, None] * state_stride + columns[None, :]
    s = tl.load(state + offsets) + k[:, None] * v[None, :]
    tl.store(state + offsets, s)
    o = tl.sum(s * q[:, None], 0)
    if vector is not None:
        vector, _ = head_rows(vector, strides[5], row, head)
        z = tl.load(vector + rows) + k
        # all threads of a number have read it before one of them writes
        tl.debug_barrier()
        tl.store(vector + rows, z)
        o /= tl.maximum(tl.sum(z * q, 0), eps)
    tl.store(output + columns, o.to(output.dtype.element_ty))


def _step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pads: Tensor | None,
    state: Tensor,
    vector: Tensor | None,
    feature_map: str,
    eps: float | None,
) -> tuple[Tensor]:
    """S += k v^T and z += k in place, o = q S, divided by max(q . z, eps) with eps.

    vector: z, (B, H, D), with eps alone.
    """
    batch, _, heads, width = query.shape
    value_width = value.shape[-1]
    normalize = eps is not None
    dtype = query.dtype if normalize else unscaled_output_dtype(query.dtype)
    output = empty_rows(query, 1, value_width, dtype)
    state_rows = writable_rows(state)
    strided = [query, key, value, output, state_rows.transpose(1, 2)]
    vector_rows: Tensor | None = None
    if normalize:
        vector_rows = writable_rows(required(vector))
        strided.append(vector_rows.unsqueeze(1))
    tile = value_width if normalize else min(value_width, WIDEST_TILE)
    launch(
        step_kernel,
        (batch * heads, value_width // tile),
        query,
        key,
        value,
        output,
        pads,
        state_rows,
        vector_rows,
        strides(strided),
        heads,
        eps if normalize else 0.0,
        D=width,
        TILE=tile,
        PHI=feature_map,
        num_warps=step_warps(tile),
    )
    write_back(state_rows, state)
    if vector_rows is not None and vector is not None:
        write_back(vector_rows, vector)
    return (output,)


linear_attention_step = in_place(
    "linear_attention_step",
    _step,
    "(Tensor query, Tensor key, Tensor value, Tensor? pads, Tensor(a!) state, "
    "Tensor(b!)? vector, str feature_map, float? eps) -> Tensor",
    ("state", "vector"),
)
