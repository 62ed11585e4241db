"""Block attention in Triton: one launch forward, one backward, one a decoding step.

Letters: B batch, N length, H heads, W block size, D head width of queries and keys, E
of values.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from ..backend import (
    autocast_disabled,
    capability,
    tf32_is_allowed,
)
from ..kernels.dropout import draw_seed, threshold_and_growth
from ..kernels.launch import (
    differentiable,
    empty_with_rows_like,
    in_place,
    launch,
    strides,
    with_contiguous_rows,
    writable_rows,
    write_back,
)
from ..states import BlockAttentionState
from .blocks import attend_in_blocks
from .kernels import (
    block_attention_backward,
    block_attention_forward,
    block_attention_step,
)
from .options import Options, output_dtype
from .sizes import num_warps, transposes_products


def block_attention(
    query: Tensor, key: Tensor, value: Tensor, options: Options
) -> tuple[Tensor, BlockAttentionState | None]:
    """The Triton implementation of ``ops.block_attention``; a step drops nothing."""
    activation, scale = options.activation, options.score_factor(query)
    dropout_p = float(options.dropout_p)

    def blocks(query, key, value, mask):
        query, key, value = map(with_contiguous_rows, (query, key, value))
        form = options.block_size, options.causal, activation, scale
        seed = draw_seed() if dropout_p else 0
        return _blocks(query, key, value, mask, *form, dropout_p, seed)[0]

    def step(query, key, value, state):
        tensors = query, key, value, *state
        output, length = _step_in_place(*tensors, activation, scale)
        return output, state._replace(length=length)

    with autocast_disabled(query):
        return attend_in_blocks(blocks, step, query, key, value, options)


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    block_size: int,
    causal: bool,
    activation: str,
    scale: float,
    dropout_p: float,
    seed: int,
) -> tuple[Tensor]:
    """All blocks in parallel."""
    output = empty_with_rows_like(value, output_dtype(value.dtype, activation))
    grid, sizes = _grid(query, block_size)
    launch(
        block_attention_forward,
        grid,
        query,
        key,
        value,
        mask,
        output,
        strides((query, key, value)),
        *_mask_strides(mask),
        *strides((output,)),
        *sizes,
        scale,
        seed,
        *threshold_and_growth(dropout_p),
        DROPS=dropout_p > 0,
        CAUSAL=causal,
        **_options(query, value, block_size, activation),
    )
    return (output,)


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    output_gradient: Tensor,
    block_size: int,
    causal: bool,
    activation: str,
    scale: float,
    dropout_p: float,
    seed: int,
) -> tuple[Tensor, ...]:
    """Gradients of query, key and value, from these and nothing else."""
    output_gradient = with_contiguous_rows(output_gradient)
    gradients = [empty_with_rows_like(x) for x in (query, key, value)]
    grid, sizes = _grid(query, block_size)
    launch(
        block_attention_backward,
        grid,
        (query, key, value),
        mask,
        (output_gradient, *gradients),
        strides((query, key, value)),
        *_mask_strides(mask),
        strides((output_gradient, *gradients)),
        *sizes,
        scale,
        seed,
        *threshold_and_growth(dropout_p),
        DROPS=dropout_p > 0,
        CAUSAL=causal,
        TRANSPOSE=transposes_products(capability(query.device)),
        **_options(query, value, block_size, activation),
    )
    return tuple(gradients)


def _save(ctx, arguments, outputs):
    ctx.save_for_backward(*arguments[:4])
    ctx.options = arguments[4:]


def _gradients(ctx, backward, output_gradient):
    gradients = backward(*ctx.saved_tensors, output_gradient, *ctx.options)
    return *gradients, None, *(None for _ in ctx.options)


_blocks = differentiable(
    "block_attention",
    _forward,
    "(Tensor query, Tensor key, Tensor value, Tensor? mask, int block_size, "
    "bool causal, str activation, float scale, float dropout_p, int seed) -> Tensor",
    _backward,
    "(Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor output_gradient, "
    "int block_size, bool causal, str activation, float scale, float dropout_p, "
    "int seed) -> (Tensor, Tensor, Tensor)",
    save=_save,
    gradients=_gradients,
    results=1,
)


def _step_tensors(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state_key: Tensor,
    state_value: Tensor,
    state_length: Tensor,
    activation: str,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """One token, in place; the device is not waited for. The output, the new length."""
    query, key, value = map(with_contiguous_rows, (query, key, value))
    batch, _, heads, width = query.shape
    block_size, value_width = state_key.shape[1], value.shape[-1]
    keys, values = writable_rows(state_key), writable_rows(state_value)
    old_length = state_length.contiguous()
    output = empty_with_rows_like(value, output_dtype(value.dtype, activation))
    length = torch.empty_like(old_length)
    launch(
        block_attention_step,
        (batch * heads,),
        query,
        key,
        value,
        keys,
        values,
        old_length,
        output,
        length,
        strides((query, key, value, keys, values, output)),
        heads,
        scale,
        BLOCK_SIZE=block_size,
        D=width,
        E=value_width,
        ACTIVATION=activation,
        num_warps=num_warps(block_size, max(width, value_width)),
    )
    write_back(keys, state_key)
    write_back(values, state_value)
    return output, length


_step_in_place = in_place(
    "block_attention_step",
    _step_tensors,
    "(Tensor query, Tensor key, Tensor value, Tensor(a!) state_key, "
    "Tensor(b!) state_value, Tensor state_length, str activation, float scale) "
    "-> (Tensor, Tensor)",
    ("state_key", "state_value"),
)


def _options(
    query: Tensor, value: Tensor, block_size: int, activation: str
) -> dict[str, Any]:
    """What the kernels of all blocks are compiled for."""
    width, value_width = query.shape[-1], value.shape[-1]
    # float32 operands where the weights of float16 inputs have no bound; TF32 keeps
    # every bit of a float16
    wide = output_dtype(value.dtype, activation) != value.dtype
    return {
        "BLOCK_SIZE": block_size,
        "D": width,
        "E": value_width,
        "ACTIVATION": activation,
        "WIDE": wide,
        "PRECISION": "tf32" if wide or tf32_is_allowed() else "ieee",
        "num_warps": num_warps(block_size, max(width, value_width)),
    }


def _grid(query: Tensor, block_size: int) -> tuple[tuple[int], tuple[int, int, int]]:
    """The launch grid, and the kernels' length, blocks and heads."""
    batch, length, heads, _ = query.shape
    blocks = triton.cdiv(length, block_size)
    return (batch * blocks * heads,), (length, blocks, heads)


def _mask_strides(mask: Tensor | None) -> tuple[int, ...]:
    return (0, 0) if mask is None else mask.stride()
