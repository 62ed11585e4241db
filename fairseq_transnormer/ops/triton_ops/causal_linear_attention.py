"""Causal linear attention in Triton: which kernels are launched, and the gradients.

Up to SHORT_LENGTH tokens: one launch forward and one backward; a program writes one
chunk and sums up what came before it again. Longer: one launch for the states of the
segments and one that walks through the segments, forward as backward.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from ..precision import unscaled_output_dtype
from .causal_linear_attention_kernels import (
    causal_backward_kernel,
    causal_forward_kernel,
)
from .launching import empty_rows, launch, strides, with_near_tokens
from .linear_attention_options import (
    WIDEST_TILE,
    causal_form,
    launch_options,
    segment_length,
)
from .linear_attention_sums import segment_sums
from .linear_attention_tasks import backward_tiles, empty_grads
from .operators import differentiable


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
    tensors = (query, key, value, output)
    tile = min(value_width, WIDEST_TILE)
    launch(
        causal_forward_kernel,
        (batch * heads * segments, value_width // tile),
        *tensors,
        pads,
        initial if initial is None else initial.contiguous(),
        sums,
        final,
        *strides(tensors),
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
    tensors = (query, key, value, grad_output, *grads)
    tiles, tasks = backward_tiles(width, value_width)
    launch(
        causal_backward_kernel,
        (batch * heads * segments * tasks,),
        *tensors,
        pads,
        initial,
        sums,
        grad_final if grad_final is None else grad_final.contiguous(),
        grad_sums,
        grad_initial,
        *strides(tensors),
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
