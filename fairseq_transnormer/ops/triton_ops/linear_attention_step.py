"""One token of causal linear attention, with the state updated in place."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..precision import unscaled_output_dtype
from .kernel_language import feature_map
from .launching import empty_rows, launch, writable_rows, write_back
from .linear_attention_options import WIDEST_TILE
from .linear_attention_tiles import head_offset
from .operators import in_place


@triton.jit
def step_kernel(
    query,
    key,
    value,
    output,
    pads,
    state,
    query_stride_b,
    query_stride_h,
    key_stride_b,
    key_stride_h,
    value_stride_b,
    value_stride_h,
    output_stride_b,
    output_stride_h,
    state_stride_b,
    state_stride_h,
    state_stride_d,
    heads,
    D: tl.constexpr,
    TILE: tl.constexpr,
    PHI: tl.constexpr,
):
    """S += phi(k) v^T, o = phi(q) S, in float32 without tensor cores.

    pads: (B, 1) or None. Grid: (B * H, E / TILE).
    """
    sequence = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, D)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    query += head_offset(sequence, heads, query_stride_b, query_stride_h)
    key += head_offset(sequence, heads, key_stride_b, key_stride_h)
    value += head_offset(sequence, heads, value_stride_b, value_stride_h)
    output += head_offset(sequence, heads, output_stride_b, output_stride_h)
    state += head_offset(sequence, heads, state_stride_b, state_stride_h)
    q = tl.load(query + rows)
    k = tl.load(key + rows)
    # phi rounds to the inputs' dtype, as it does for longer inputs
    q = feature_map(q.to(tl.float32), PHI).to(q.dtype).to(tl.float32)
    k = feature_map(k.to(tl.float32), PHI).to(k.dtype).to(tl.float32)
    v = tl.load(value + columns).to(tl.float32)
    if pads is not None:
        real = tl.load(pads + sequence // heads) == 0
        k = tl.where(real, k, 0.0)
        v = tl.where(real, v, 0.0)
    offsets = rows[:, None] * state_stride_d + columns[None, :]
    s = tl.load(state + offsets) + k[:, None] * v[None, :]
    tl.store(state + offsets, s)
    o = tl.sum(s * q[:, None], 0)
    tl.store(output + columns, o.to(output.dtype.element_ty))


def _step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pads: Tensor | None,
    state: Tensor,
    feature_map: str,
) -> tuple[Tensor]:
    """S += k v^T in place, o = q S."""
    batch, _, heads, width = query.shape
    output = empty_rows(query, 1, value.shape[-1], unscaled_output_dtype(query.dtype))
    rows = writable_rows(state)
    tile = min(value.shape[-1], WIDEST_TILE)
    tensors = (query, key, value, output)
    launch(
        step_kernel,
        (batch * heads, value.shape[-1] // tile),
        *tensors,
        pads,
        rows,
        *(x.stride(i) for x in tensors for i in (0, 2)),
        *rows.stride()[:3],
        heads,
        D=width,
        TILE=tile,
        PHI=feature_map,
        num_warps=4,
    )
    write_back(rows, state)
    return (output,)


linear_attention_step = in_place(
    "linear_attention_step",
    _step,
    "(Tensor query, Tensor key, Tensor value, Tensor? pads, Tensor(a!) state, "
    "str feature_map) -> Tensor",
    ("state",),
)
