"""Linear attention without a causal mask in Triton: o = q (K^T V).

One launch for the sums of the segments and one for the rows, forward as backward.
"""

from __future__ import annotations

import triton
from torch import Tensor

from ..precision import unscaled_output_dtype
from .bidirectional_linear_attention_kernels import (
    bidirectional_backward_kernel,
    bidirectional_forward_kernel,
)
from .launching import empty_rows, launch, strides, with_near_tokens
from .linear_attention_options import (
    SHORT_LENGTH,
    WIDEST_TILE,
    launch_options,
    segment_length,
)
from .linear_attention_sums import segment_sums
from .linear_attention_tasks import backward_tiles, empty_grads
from .operators import differentiable


def _forward(
    query: Tensor, key: Tensor, value: Tensor, pads: Tensor | None, feature_map: str
) -> tuple[Tensor, Tensor]:
    """The output, and the segments' sums of phi(k)^T v."""
    batch, length, heads, width = query.shape
    value_width = value.shape[-1]
    options = launch_options("bidirectional", query, value)
    sums = segment_sums(key, value, pads, feature_map, segment_length(key), options)
    output = empty_rows(query, length, value_width, unscaled_output_dtype(query.dtype))
    part = _part(query, options)
    parts = triton.cdiv(length, part)
    tile = min(value_width, WIDEST_TILE)
    launch(
        bidirectional_forward_kernel,
        (batch * heads * parts, value_width // tile),
        query,
        output,
        sums,
        *strides((query, output)),
        length,
        heads,
        sums.shape[1],
        parts,
        part,
        D=width,
        E=value_width,
        TILE=tile,
        PHI=feature_map,
        **options,
    )
    return output, sums


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad_output: Tensor,
    pads: Tensor | None,
    sums: Tensor,
    feature_map: str,
) -> tuple[Tensor, ...]:
    """Gradients of query, key and value."""
    batch, length, heads, width = query.shape
    value_width = value.shape[-1]
    options = launch_options("bidirectional", query, value)
    grad_output = with_near_tokens(grad_output)
    grad_sums = segment_sums(
        query, grad_output, None, feature_map, segment_length(query), options
    )
    grads = empty_grads(query, key, value)
    tensors = (query, key, value, grad_output, *grads)
    longer = query if length >= key.shape[1] else key
    part = _part(longer, options)
    parts = triton.cdiv(longer.shape[1], part)
    tiles, tasks = backward_tiles(width, value_width)
    launch(
        bidirectional_backward_kernel,
        (batch * heads * parts * tasks,),
        *tensors,
        pads,
        sums,
        grad_sums,
        *strides(tensors),
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
        **tiles,
        **options,
    )
    return tuple(grads)


def _part(x: Tensor, options: dict) -> int:
    """Rows of a program."""
    return options["CHUNK"] if x.shape[1] <= SHORT_LENGTH else segment_length(x)


def _save(ctx, arguments, outputs):
    query, key, value, pads, ctx.feature_map = arguments
    ctx.save_for_backward(query, key, value, pads, outputs[1])


def _gradients(ctx, backward, grad_output):
    query, key, value, pads, sums = ctx.saved_tensors
    grads = backward(query, key, value, grad_output, pads, sums, ctx.feature_map)
    return *grads, None, None


# arguments: as of _forward, with contiguous rows; returns the output alone
bidirectional_linear_attention = differentiable(
    "bidirectional_linear_attention",
    _forward,
    "(Tensor query, Tensor key, Tensor value, Tensor? pads, str feature_map) "
    "-> (Tensor, Tensor)",
    _backward,
    "(Tensor query, Tensor key, Tensor value, Tensor grad_output, Tensor? pads, "
    "Tensor sums, str feature_map) -> (Tensor, Tensor, Tensor)",
    save=_save,
    gradients=_gradients,
    results=1,
)
