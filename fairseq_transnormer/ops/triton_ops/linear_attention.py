"""Linear attention in Triton: what is launched when, and the gradients.

Causal, up to SHORT_LENGTH tokens: one launch forward and one backward; a program writes
one chunk and sums up what came before it again. Longer: one launch for the states of
the segments and one that walks through the segments, forward as backward. One token
with a state: one launch that updates the state. Not causal: one launch for the sums of
the parts and one for the rows. No atomics: the same inputs give the same bits.

Letters: B batch, H heads, N length, D head width of queries and keys, E of values.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..attention_inputs import real_lengths
from ..precision import unscaled_output_dtype
from ..states import LinearAttentionState
from .bidirectional_linear_attention_kernels import (
    bidirectional_backward_kernel,
    bidirectional_forward_kernel,
)
from .causal_linear_attention_kernels import (
    causal_backward_kernel,
    causal_forward_kernel,
)
from .launching import with_contiguous_rows
from .linear_attention_options import SHORT_LENGTH, launch_options, segment_length
from .linear_attention_step import step_kernel
from .linear_attention_sums import segment_sums_kernel


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool,
    feature_map: str = "identity",
    key_padding_mask: Tensor | None = None,
    normalize: bool = False,
    eps: float = 1e-6,
    initial_state: LinearAttentionState | None = None,
    return_state: bool = False,
):
    """The Triton implementation of ``ops.linear_attention``, without ``normalize``."""
    query, key, value = (with_contiguous_rows(x) for x in (query, key, value))
    pads = None
    if key_padding_mask is not None:
        pads = key_padding_mask.contiguous().view(torch.uint8)
    # kernels are launched on the current device, whatever device the tensors are on
    with torch.cuda.device_of(query):
        if not causal:
            return _LinearAttention.apply(query, key, value, pads, feature_map)
        state = None if initial_state is None else initial_state.key_value
        needs_grad = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in (query, key, value, state)
        )
        if state is not None and query.shape[1] == 1 and not needs_grad:
            output = _step(query, key, value, pads, state, feature_map)
        else:
            output, state = _CausalLinearAttention.apply(
                query, key, value, state, pads, feature_map, return_state
            )
    if not return_state:
        return output
    if initial_state is None:
        length = real_lengths(key, key_padding_mask)
    elif key_padding_mask is None:
        length = initial_state.length + key.shape[1]
    else:
        length = initial_state.length + real_lengths(key, key_padding_mask)
    return output, LinearAttentionState(state, None, length)


def _step(query, key, value, pads, state, feature_map) -> Tensor:
    """One token: S += k v^T in place, o = q S."""
    batch, _, heads, width = query.shape
    output = _empty_rows(query, 1, value.shape[-1], unscaled_output_dtype(query.dtype))
    work = with_contiguous_rows(state)
    tile = min(value.shape[-1], 64)
    tensors = (query, key, value, output)
    step_kernel[(batch * heads, value.shape[-1] // tile)](
        *tensors,
        pads,
        work,
        *(x.stride(i) for x in tensors for i in (0, 2)),
        *work.stride()[:3],
        heads,
        D=width,
        TILE=tile,
        PHI=feature_map,
        num_warps=4,
    )
    if work is not state:
        state.copy_(work)
    return output


class _CausalLinearAttention(torch.autograd.Function):
    """(query, key, value, state) -> (output, state after the last token or None).

    Saved: the inputs and one state a segment.
    """

    @staticmethod
    def forward(ctx, query, key, value, initial, pads, feature_map, return_state):
        batch, length, heads, width = query.shape
        value_width = value.shape[-1]
        options = launch_options(query.dtype, width, value_width)
        short = length <= SHORT_LENGTH
        segment = options["CHUNK"] if short else segment_length(length, batch * heads)
        segments = triton.cdiv(length, segment)
        sums = None
        if not short and segments > 1:
            sums = _segment_sums(key, value, pads, feature_map, segment, options)
        if initial is not None:
            initial = initial.contiguous()
        final = None
        if return_state:
            final = torch.empty(
                (batch, heads, width, value_width),
                dtype=torch.float32,
                device=query.device,
            )
        output = _empty_rows(
            query, length, value_width, unscaled_output_dtype(query.dtype)
        )
        tensors = (query, key, value, output)
        tile = min(value_width, 64)
        causal_forward_kernel[(batch * heads * segments, value_width // tile)](
            *tensors,
            pads,
            initial,
            sums,
            final,
            *_strides(tensors),
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
        ctx.save_for_backward(query, key, value, initial, pads, sums)
        ctx.feature_map, ctx.options = feature_map, options
        ctx.short, ctx.segment, ctx.segments = short, segment, segments
        ctx.set_materialize_grads(False)
        return output, final

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output, grad_final):
        query, key, value, initial, pads, sums = ctx.saved_tensors
        batch, length, heads, width = query.shape
        value_width = value.shape[-1]
        with torch.cuda.device_of(query):
            grad_output = _grad_output(grad_output, query, value_width)
            if grad_final is not None:
                grad_final = grad_final.contiguous()
            grad_sums = None
            if sums is not None:
                grad_sums = _segment_sums(
                    query, grad_output, None, ctx.feature_map, ctx.segment, ctx.options
                )
            grad_initial = None
            if ctx.needs_input_grad[3]:
                grad_initial = torch.empty_like(initial)
            tensors = (query, key, value, grad_output, *_empty_grads(query, key, value))
            tiles = {"TILE_D": min(width, 64), "TILE_E": min(value_width, 64)}
            causal_backward_kernel[
                (batch * heads * ctx.segments, _backward_tasks(width, value_width))
            ](
                *tensors,
                pads,
                initial,
                sums,
                grad_final,
                grad_sums,
                grad_initial,
                *_strides(tensors),
                length,
                heads,
                ctx.segments,
                ctx.segment,
                D=width,
                E=value_width,
                PHI=ctx.feature_map,
                SHORT=ctx.short,
                **tiles,
                **ctx.options,
            )
        return *tensors[4:], grad_initial, None, None, None


class _LinearAttention(torch.autograd.Function):
    """The bidirectional form, o = q (K^T V)."""

    @staticmethod
    def forward(ctx, query, key, value, pads, feature_map):
        batch, length, heads, width = query.shape
        value_width = value.shape[-1]
        options = launch_options(query.dtype, width, value_width)
        segment = segment_length(key.shape[1])
        sums = _segment_sums(key, value, pads, feature_map, segment, options)
        output = _empty_rows(
            query, length, value_width, unscaled_output_dtype(query.dtype)
        )
        part, parts = _parts(length, options["CHUNK"])
        tile = min(value_width, 64)
        bidirectional_forward_kernel[(batch * heads * parts, value_width // tile)](
            query,
            output,
            sums,
            *_strides((query, output)),
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
        ctx.save_for_backward(query, key, value, pads, sums)
        ctx.feature_map, ctx.options = feature_map, options
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        query, key, value, pads, sums = ctx.saved_tensors
        batch, length, heads, width = query.shape
        value_width = value.shape[-1]
        with torch.cuda.device_of(query):
            grad_output = _grad_output(grad_output, query, value_width)
            segment = segment_length(length)
            grad_sums = _segment_sums(
                query, grad_output, None, ctx.feature_map, segment, ctx.options
            )
            tensors = (query, key, value, grad_output, *_empty_grads(query, key, value))
            part, parts = _parts(max(length, key.shape[1]), ctx.options["CHUNK"])
            tiles = {"TILE_D": min(width, 64), "TILE_E": min(value_width, 64)}
            bidirectional_backward_kernel[
                (batch * heads * parts, _backward_tasks(width, value_width))
            ](
                *tensors,
                pads,
                sums,
                grad_sums,
                *_strides(tensors),
                length,
                key.shape[1],
                heads,
                sums.shape[1],
                grad_sums.shape[1],
                parts,
                part,
                D=width,
                E=value_width,
                PHI=ctx.feature_map,
                **tiles,
                **ctx.options,
            )
        return *tensors[4:], None, None


def _segment_sums(key, value, pads, feature_map, segment, options) -> Tensor:
    """sum_j phi(k_j) v_j^T of each segment: (B * H, segments, D, E), float32."""
    batch, length, heads, width = key.shape
    value_width = value.shape[-1]
    segments = triton.cdiv(length, segment)
    sums = torch.empty(
        (batch * heads, segments, width, value_width),
        dtype=torch.float32,
        device=key.device,
    )
    tile = min(value_width, 64)
    segment_sums_kernel[(batch * heads * segments, value_width // tile)](
        key,
        value,
        pads,
        sums,
        *_strides((key, value)),
        length,
        heads,
        segments,
        segment,
        D=width,
        E=value_width,
        TILE=tile,
        PHI=feature_map,
        **options,
    )
    return sums


def _parts(length: int, chunk: int) -> tuple[int, int]:
    """Rows of a program of the bidirectional kernels, and how many such parts."""
    part = chunk if length <= SHORT_LENGTH else segment_length(length)
    return part, triton.cdiv(length, part)


def _backward_tasks(width: int, value_width: int) -> int:
    """Tiles of dQ, dK and dV."""
    return 2 * (width // min(width, 64)) + value_width // min(value_width, 64)


def _strides(tensors) -> list[int]:
    return [stride for x in tensors for stride in x.stride()[:3]]


def _empty_rows(like: Tensor, length: int, width: int, dtype: torch.dtype) -> Tensor:
    """(B, length, H, width), in fairseq's T x B x C order where ``like`` has it."""
    batch, _, heads, _ = like.shape
    options = {"dtype": dtype, "device": like.device}
    if like.stride(0) < like.stride(1):
        return torch.empty((length, batch, heads, width), **options).transpose(0, 1)
    return torch.empty((batch, length, heads, width), **options)


def _empty_grads(*tensors: Tensor) -> list[Tensor]:
    return [_empty_rows(x, x.shape[1], x.shape[3], x.dtype) for x in tensors]


def _grad_output(grad_output: Tensor | None, query: Tensor, width: int) -> Tensor:
    """The gradient with its last dimension contiguous; zeros for none."""
    if grad_output is not None:
        return with_contiguous_rows(grad_output)
    dtype = unscaled_output_dtype(query.dtype)
    return query.new_zeros((*query.shape[:3], width), dtype=dtype)
