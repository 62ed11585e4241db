"""Causal linear attention in Triton: launches of its kernels, and the gradients.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.

Three forms (``options.causal_plan`` picks one), forward as backward:

short          one launch; a program writes one chunk and sums up again what came before
segments       one launch for the states of the segments and one that walks through them
one segment    the second of these launches only
"""

from __future__ import annotations

import torch
import triton
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
from .causal_kernels import causal_backward_kernel, causal_forward_kernel
from .normalizer import normalizer_gradients
from .options import (
    WIDEST_TILE,
    backward_tiles,
    causal_plan,
    empty_grads,
    launch_options,
)
from .sums import segment_sums


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    initial: Tensor | None,
    initial_vector: Tensor | None,
    pads: Tensor | None,
    feature_map: str,
    eps: float | None,
    return_state: bool,
    needs_grad: bool,
) -> tuple[Tensor | None, ...]:
    """The output; the state after the last token and, with eps, its sum of keys.

    Then what the backward pass reads: the segments' sums and their vectors, the sums of
    the scores, (B * H, N), and what rounding took off the output, as it. None for what
    there is not.

    Args:
        initial, initial_vector: (B, H, D, E) and (B, H, D), float32, or None.
        pads: uint8 (B, N), not 0 at pads, or None.
        eps: smallest divisor of the sum normaliser, or None without it.
        needs_grad: whether a backward pass may come.
    """
    batch, length, heads, width = query.shape
    value_width = value.shape[-1]
    normalize = eps is not None
    plan = causal_plan("forward", query, value, normalize=normalize)
    sums = vectors = None
    if plan.several:
        sums, vectors = segment_sums(
            key, value, pads, feature_map, plan.segment, vectors=normalize
        )
    final = final_vector = score_sums = None
    if return_state:
        final = query.new_empty((batch, heads, width, value_width), dtype=torch.float32)
    if normalize:
        score_sums = query.new_empty((batch * heads, length), dtype=torch.float32)
        if return_state:
            final_vector = query.new_empty((batch, heads, width), dtype=torch.float32)
    dtype = query.dtype if normalize else unscaled_output_dtype(query.dtype)
    output = empty_rows(query, length, value_width, dtype)
    rest = None
    if normalize and needs_grad and dtype != torch.float32:
        rest = torch.empty_like(output)
    strided = (query, key, value, output) + (() if rest is None else (rest,))
    segments = triton.cdiv(length, plan.segment)
    tile = min(value_width, WIDEST_TILE)
    launch(
        causal_forward_kernel,
        (batch * heads * segments, value_width // tile),
        query,
        key,
        value,
        output,
        rest,
        score_sums,
        pads,
        (_contiguous(initial), sums, final),
        (_contiguous(initial_vector), vectors, final_vector),
        strides(strided),
        length,
        heads,
        segments,
        plan.segment,
        eps if normalize else 0.0,
        D=width,
        E=value_width,
        TILE=tile,
        PHI=feature_map,
        SHORT=plan.short,
        NORMALIZE=normalize,
        **launch_options(f"{plan.form} forward", query, value, normalize=normalize),
    )
    if plan != causal_plan("backward", query, value, normalize=normalize):
        # they are of no use there, and would be kept until then
        sums = vectors = None
    return output, final, final_vector, sums, vectors, score_sums, rest


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad_output: Tensor | None,
    grad_final: Tensor | None,
    grad_final_vector: Tensor | None,
    initial: Tensor | None,
    initial_vector: Tensor | None,
    pads: Tensor | None,
    output: Tensor | None,
    sums: Tensor | None,
    vectors: Tensor | None,
    score_sums: Tensor | None,
    rest: Tensor | None,
    feature_map: str,
    eps: float | None,
    initial_needs_grad: bool,
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key and value; where needed, of initial and its vector.

    output, score_sums, rest: what _forward returned, with eps alone.
    """
    batch, length, heads, width = query.shape
    value_width = value.shape[-1]
    normalize = eps is not None
    plan = causal_plan("backward", query, value, normalize=normalize)
    score_grads = None
    if grad_output is None:
        dtype = unscaled_output_dtype(query.dtype)
        grad_output = query.new_zeros((*query.shape[:3], value_width), dtype=dtype)
        if normalize:
            score_grads = torch.zeros_like(required(score_sums))
    elif eps is not None:
        grad_output = with_near_tokens(grad_output)
        grad_output, score_grads = normalizer_gradients(
            grad_output, required(output), rest, required(score_sums), eps
        )
    grad_output = with_near_tokens(grad_output)
    if normalize:
        grad_final, grad_final_vector = _both(
            grad_final, grad_final_vector, (batch, heads, width), value_width, query
        )
    grad_sums = grad_vectors = None
    if plan.several:
        if plan != causal_plan("forward", query, value, normalize=normalize):
            sums, vectors = segment_sums(
                key, value, pads, feature_map, plan.segment, vectors=normalize
            )
        grad_sums, grad_vectors = segment_sums(
            query,
            grad_output,
            None,
            feature_map,
            plan.segment,
            vectors=normalize,
            weights=score_grads,
        )
    else:
        sums = None
    if not normalize or not plan.several:
        vectors = None
    initial, initial_vector = _contiguous(initial), _contiguous(initial_vector)
    grad_initial = grad_initial_vector = None
    if initial_needs_grad:
        grad_initial = torch.empty_like(required(initial))
        if normalize:
            grad_initial_vector = torch.empty_like(required(initial_vector))
    grads = empty_grads(query, key, value)
    segments = triton.cdiv(length, plan.segment)
    tiles, tasks = backward_tiles(width, value_width)
    launch(
        causal_backward_kernel,
        (batch * heads * segments * tasks,),
        (query, key, value, grad_output),
        tuple(grads),
        pads,
        (initial, sums, initial_vector, vectors),
        (
            _contiguous(grad_final),
            grad_sums,
            grad_initial,
            _contiguous(grad_final_vector),
            grad_vectors,
            grad_initial_vector,
        ),
        score_grads,
        strides((query, key, value, grad_output, *grads)),
        length,
        heads,
        segments,
        plan.segment,
        D=width,
        E=value_width,
        PHI=feature_map,
        SHORT=plan.short,
        NORMALIZE=normalize,
        **tiles,
        **launch_options(f"{plan.form} backward", query, value, normalize=normalize),
    )
    return *grads, grad_initial, grad_initial_vector


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _both(
    matrix: Tensor | None,
    vector: Tensor | None,
    shape: tuple[int, int, int],
    value_width: int,
    like: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of a state and its vector: zeros for one that is None alone."""
    if matrix is None and vector is not None:
        matrix = like.new_zeros((*shape, value_width), dtype=torch.float32)
    if vector is None and matrix is not None:
        vector = like.new_zeros(shape, dtype=torch.float32)
    return matrix, vector


def _save(ctx, arguments, outputs):
    query, key, value, initial, vector, pads, ctx.feature_map, ctx.eps, *_ = arguments
    output = None if ctx.eps is None else outputs[0]
    ctx.save_for_backward(
        query, key, value, initial, vector, pads, output, *outputs[3:]
    )


def _gradients(ctx, backward, grad_output, grad_final, grad_final_vector):
    query, key, value, initial, vector, pads, output, *saved = ctx.saved_tensors
    initial_needs_grad = any(ctx.needs_input_grad[3:5])
    *grads, grad_initial, grad_vector = backward(
        query,
        key,
        value,
        grad_output,
        grad_final,
        grad_final_vector,
        initial,
        vector,
        pads,
        output,
        *saved,
        ctx.feature_map,
        ctx.eps,
        initial_needs_grad,
    )
    if not initial_needs_grad:
        grad_initial = None
    if not initial_needs_grad or ctx.eps is None:
        grad_vector = None
    return *grads, grad_initial, grad_vector, None, None, None, None, None


# arguments: as of _forward, with contiguous rows; returns output, state and its vector
causal_linear_attention = differentiable(
    "causal_linear_attention",
    _forward,
    "(Tensor query, Tensor key, Tensor value, Tensor? initial, Tensor? initial_vector, "
    "Tensor? pads, str feature_map, float? eps, bool return_state, bool needs_grad) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _backward,
    "(Tensor query, Tensor key, Tensor value, Tensor? grad_output, Tensor? grad_final, "
    "Tensor? grad_final_vector, Tensor? initial, Tensor? initial_vector, Tensor? pads, "
    "Tensor? output, Tensor? sums, Tensor? vectors, Tensor? score_sums, "
    "Tensor? rest, str feature_map, float? eps, bool initial_needs_grad) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    save=_save,
    gradients=_gradients,
    results=3,
)
