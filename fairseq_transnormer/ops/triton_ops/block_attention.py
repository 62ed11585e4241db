"""Block attention in Triton: one launch forward, one backward, one a decoding step."""

from __future__ import annotations

from functools import partial

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..block_states import attend_in_blocks, output_dtype
from ..precision import autocast_disabled
from ..states import BlockAttentionState
from .block_attention_kernels import (
    block_attention_backward,
    block_attention_forward,
    block_attention_step,
)
from .block_tiles import num_warps, transposes_products
from .launching import with_contiguous_rows
from .support import INTERPRETED, tf32_is_allowed


def block_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    block_size: int,
    causal: bool,
    activation: str = "softmax",
    scale: float | None = None,
    dropout_p: float = 0.0,
    key_padding_mask: Tensor | None = None,
    initial_state: BlockAttentionState | None = None,
    return_state: bool = False,
):
    """The Triton implementation of ``ops.block_attention``; dropout_p must be 0."""
    scale = float(query.shape[-1] ** -0.5 if scale is None else scale)

    def blocks(query, key, value, mask):
        return _Blocks.apply(
            query, key, value, mask, block_size, causal, activation, scale
        )

    with autocast_disabled(query):
        return attend_in_blocks(
            blocks,
            partial(_step, activation=activation, scale=scale),
            query,
            key,
            value,
            block_size=block_size,
            key_padding_mask=key_padding_mask,
            initial_state=initial_state,
            return_state=return_state,
        )


class _Blocks(torch.autograd.Function):
    """All blocks in parallel; keeps nothing but its inputs for the backward pass."""

    @staticmethod
    def forward(ctx, query, key, value, mask, block_size, causal, activation, scale):
        query, key, value = map(with_contiguous_rows, (query, key, value))
        dtype = output_dtype(value.dtype, activation)
        output = _empty_like(value, dtype)
        # float32 operands where the weights of float16 inputs have no bound; TF32 keeps
        # every bit of a float16
        wide = dtype != value.dtype
        precision = "tf32" if wide or tf32_is_allowed() else "ieee"
        ctx.options = {
            "BLOCK_SIZE": block_size,
            "D": query.shape[-1],
            "E": value.shape[-1],
            "CAUSAL": causal,
            "ACTIVATION": activation,
            "WIDE": wide,
            "PRECISION": precision,
            "num_warps": num_warps(block_size, max(query.shape[-1], value.shape[-1])),
        }
        ctx.scale = scale
        ctx.save_for_backward(query, key, value, mask)
        grid, sizes = _grid(query, block_size)
        with torch.cuda.device_of(query):
            block_attention_forward[grid](
                query,
                key,
                value,
                mask,
                output,
                *query.stride()[:3],
                *key.stride()[:3],
                *value.stride()[:3],
                *_mask_strides(mask),
                *output.stride()[:3],
                *sizes,
                scale,
                **ctx.options,
            )
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, output_gradient):
        query, key, value, mask = ctx.saved_tensors
        output_gradient = with_contiguous_rows(output_gradient)
        gradients = [_empty_like(x, x.dtype) for x in (query, key, value)]
        grid, sizes = _grid(query, ctx.options["BLOCK_SIZE"])
        with torch.cuda.device_of(query):
            block_attention_backward[grid](
                query,
                key,
                value,
                mask,
                output_gradient,
                *gradients,
                *query.stride()[:3],
                *key.stride()[:3],
                *value.stride()[:3],
                *_mask_strides(mask),
                *output_gradient.stride()[:3],
                *(stride for x in gradients for stride in x.stride()[:3]),
                *sizes,
                ctx.scale,
                TRANSPOSE=transposes_products(_capability(query)),
                **ctx.options,
            )
        return *gradients, None, None, None, None, None


def _step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: BlockAttentionState,
    *,
    activation: str,
    scale: float,
) -> tuple[Tensor, BlockAttentionState]:
    """One token, in place; the device is not waited for."""
    query, key, value = map(with_contiguous_rows, (query, key, value))
    batch, _, heads, width = query.shape
    block_size, value_width = state.key.shape[1], value.shape[-1]
    output = _empty_like(value, output_dtype(value.dtype, activation))
    length = torch.empty_like(state.length)
    with torch.cuda.device_of(query):
        block_attention_step[(batch * heads,)](
            query,
            key,
            value,
            state.key,
            state.value,
            state.length,
            output,
            length,
            *query.stride()[:3:2],
            *key.stride()[:3:2],
            *value.stride()[:3:2],
            *state.key.stride()[:3],
            *state.value.stride()[:3],
            *output.stride()[:3:2],
            heads,
            scale,
            BLOCK_SIZE=block_size,
            D=width,
            E=value_width,
            ACTIVATION=activation,
            num_warps=num_warps(block_size, max(width, value_width)),
        )
    return output, state._replace(length=length)


def _grid(query: Tensor, block_size: int) -> tuple[tuple[int], tuple[int, int, int]]:
    """The launch grid, and the kernels' length, blocks and heads."""
    batch, length, heads, _ = query.shape
    blocks = triton.cdiv(length, block_size)
    return (batch * blocks * heads,), (length, blocks, heads)


def _empty_like(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Memory in the layout of x; in the usual one where x overlaps itself."""
    memory = torch.empty_like(x, dtype=dtype)
    if memory.stride(-1) == 1:
        return memory
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _mask_strides(mask: Tensor | None) -> tuple[int, ...]:
    return (0, 0) if mask is None else mask.stride()


def _capability(tensor: Tensor) -> tuple[int, int]:
    if INTERPRETED:
        return (0, 0)
    return torch.cuda.get_device_capability(tensor.device)
