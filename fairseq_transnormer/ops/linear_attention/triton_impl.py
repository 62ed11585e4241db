"""Linear attention in Triton: which kernels serve a call, launches, and gradients.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.

A causal call has two forms (``launch_table.causal_plan`` picks one for each direction):

segments       one launch for the states of the segments and one that walks through them
one segment    the second of these launches only

No kernel uses atomics.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from ..backend import unscaled_output_dtype
from ..feature_maps import FEATURE_MAPS
from ..inputs import real_lengths
from ..kernels.launch import (
    differentiable,
    empty_rows,
    launch,
    required,
    strides,
    with_near_tokens,
)
from ..states import LinearAttentionState
from .bidirectional import bidirectional_linear_attention
from .kernels import causal_backward_kernel, causal_forward_kernel
from .launch_table import (
    WIDEST_TILE,
    backward_tiles,
    causal_plan,
    empty_grads,
    launch_options,
)
from .options import Options
from .segment_sums import segment_sums
from .step import linear_attention_step


def linear_attention(
    query: Tensor, key: Tensor, value: Tensor, options: Options
) -> tuple[Tensor, LinearAttentionState | None]:
    """The Triton implementation of ``ops.linear_attention``.

    On an H100 the feature map costs less in front of the kernels than in them.
    """
    step = options.is_step(query, key, value)
    mask, state = options.key_padding_mask, options.initial_state
    if not step and options.feature_map != "identity":
        if mask is not None:
            # phi' of what stands at a pad may be NaN
            key = key.masked_fill(mask[..., None, None], 0.0)
        phi = FEATURE_MAPS[options.feature_map]
        query, key = phi(query), phi(key)
    query, key, value = (with_near_tokens(x) for x in (query, key, value))
    pads = None if mask is None else mask.contiguous().view(torch.uint8)
    if not options.causal:
        return bidirectional_linear_attention(query, key, value, pads)[0], None
    key_value = key_sum = eps = None
    if state is not None:
        key_value = state.key_value
    if state is not None and options.normalize:
        key_sum, eps = state.key_sum, options.eps
    if step:
        phi_name = options.feature_map
        tensors = query, key, value, pads, key_value, key_sum
        (output,) = linear_attention_step(*tensors, phi_name, eps)
    else:
        output, key_value = causal_linear_attention(
            query, key, value, key_value, pads, options.return_state
        )
    if not options.return_state:
        return output, None
    length = real_lengths(key, mask, None if state is None else state.length)
    return output, LinearAttentionState(required(key_value), key_sum, length)


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    initial: Tensor | None,
    pads: Tensor | None,
    return_state: bool,
) -> tuple[Tensor | None, ...]:
    """The output; the state after the last token; the segments' sums, for the backward
    pass. None for what there is not.

    Args:
        initial: (B, H, D, E), float32, or None.
        pads: uint8 (B, N), not 0 at pads, or None.
    """
    batch, length, heads, width = query.shape
    value_width = value.shape[-1]
    plan = causal_plan("forward", query, value)
    sums = final = None
    if plan.several:
        sums = segment_sums(key, value, pads, plan.segment)
    if return_state:
        final = query.new_empty((batch, heads, width, value_width), dtype=torch.float32)
    dtype = unscaled_output_dtype(query.dtype)
    output = empty_rows(query, length, value_width, dtype)
    segments = triton.cdiv(length, plan.segment)
    tile = min(value_width, WIDEST_TILE)
    launch(
        causal_forward_kernel,
        (batch * heads * segments, value_width // tile),
        query,
        key,
        value,
        output,
        pads,
        (_contiguous(initial), sums, final),
        strides((query, key, value, output)),
        length,
        heads,
        segments,
        plan.segment,
        D=width,
        E=value_width,
        TILE=tile,
        **launch_options("segments forward", query, value),
    )
    if plan != causal_plan("backward", query, value):
        # they are of no use there, and would be kept until then
        sums = None
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
    initial_needs_grad: bool,
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key and value; where needed, of initial."""
    batch, length, heads, width = query.shape
    value_width = value.shape[-1]
    plan = causal_plan("backward", query, value)
    if grad_output is None:
        dtype = unscaled_output_dtype(query.dtype)
        grad_output = query.new_zeros((*query.shape[:3], value_width), dtype=dtype)
    grad_output = with_near_tokens(grad_output)
    grad_sums = None
    if plan.several:
        if plan != causal_plan("forward", query, value):
            sums = segment_sums(key, value, pads, plan.segment)
        grad_sums = segment_sums(query, grad_output, None, plan.segment)
    else:
        sums = None
    initial = _contiguous(initial)
    grad_initial = None
    if initial_needs_grad:
        grad_initial = torch.empty_like(required(initial))
    grads = empty_grads(query, key, value)
    segments = triton.cdiv(length, plan.segment)
    tiles, tasks = backward_tiles(width, value_width)
    launch(
        causal_backward_kernel,
        (batch * heads * segments * tasks,),
        (query, key, value, grad_output),
        tuple(grads),
        pads,
        (initial, sums),
        (_contiguous(grad_final), grad_sums, grad_initial),
        strides((query, key, value, grad_output, *grads)),
        length,
        heads,
        segments,
        plan.segment,
        D=width,
        E=value_width,
        **tiles,
        **launch_options("segments backward", query, value),
    )
    return *grads, grad_initial


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _save(ctx, arguments, outputs):
    query, key, value, initial, pads, _ = arguments
    ctx.save_for_backward(query, key, value, initial, pads, outputs[2])


def _gradients(ctx, backward, grad_output, grad_final):
    query, key, value, *saved = ctx.saved_tensors
    initial_needs_grad = ctx.needs_input_grad[3]
    *grads, grad_initial = backward(
        query, key, value, grad_output, grad_final, *saved, initial_needs_grad
    )
    return *grads, grad_initial if initial_needs_grad else None, None, None


# arguments: as of _forward, with contiguous rows; returns the output and the state
causal_linear_attention = differentiable(
    "causal_linear_attention",
    _forward,
    "(Tensor query, Tensor key, Tensor value, Tensor? initial, Tensor? pads, "
    "bool return_state) -> (Tensor, Tensor, Tensor)",
    _backward,
    "(Tensor query, Tensor key, Tensor value, Tensor? grad_output, Tensor? grad_final, "
    "Tensor? initial, Tensor? pads, Tensor? sums, bool initial_needs_grad) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    save=_save,
    gradients=_gradients,
    results=2,
)
