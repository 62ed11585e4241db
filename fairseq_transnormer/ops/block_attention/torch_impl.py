"""Block-diagonal attention in torch: whole blocks at once, and one-token steps.

Letters: B batch, H heads, N length, G blocks, W block size, D head width of queries and
keys, E of values.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ..backend import accumulation_dtype, autocast_disabled
from ..inputs import zero_pads
from ..states import BlockAttentionState
from .blocks import attend_in_blocks
from .options import Options, output_dtype


def block_attention(
    query: Tensor, key: Tensor, value: Tensor, options: Options
) -> tuple[Tensor, BlockAttentionState | None]:
    """The torch implementation of ``ops.block_attention``."""
    blocks, step = partial(_blocks, options=options), partial(_step, options=options)
    with autocast_disabled(query):
        return attend_in_blocks(blocks, step, query, key, value, options)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    hidden: Tensor | None,
    options: Options,
    *,
    causal: bool,
    all_see: bool = False,
) -> Tensor:
    """P v with P = activation(scale * q k^T), (..., H, W, E), summed in float32.

    hidden: bool, True where P must be 0, besides what is hidden by ``causal``.
    all_see: whether no query has all keys hidden, by ``hidden`` alone.
    """
    scale, dropout_p = options.score_factor(q), options.dropout_p
    averages = options.activation == "softmax" and dropout_p == 0 and scale > 0
    if averages and (hidden is None or all_see):
        # keeps no scores for the backward pass, and sums in float32 itself; its kernel
        # for the CPU hides the future before it multiplies by the scale
        seen = None if hidden is None else ~hidden
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=seen, is_causal=causal, scale=scale
        )
    dtype = accumulation_dtype(q.dtype)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if causal:
        size = q.shape[-2]
        future = torch.ones((size, size), dtype=torch.bool, device=q.device).triu(1)
        hidden = future if hidden is None else hidden | future
    scores = (q * scale) @ k.transpose(-1, -2)
    if options.activation == "relu":
        if hidden is not None:
            scores = scores.masked_fill(hidden, 0)
        weights = scores.relu()
    elif hidden is None:
        weights = scores.softmax(-1)
    else:
        # the smallest number, not -inf, and zeros afterwards: a row that sees nothing
        # gives zeros and finite gradients
        scores = scores.masked_fill(hidden, torch.finfo(dtype).min)
        weights = scores.softmax(-1).masked_fill(hidden, 0)
    if dropout_p > 0:
        weights = F.dropout(weights, dropout_p)
    return weights @ v


def _blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    options: Options,
) -> Tensor:
    """All blocks in parallel: (B, N, H, E)."""
    key, value = zero_pads(key, value, key_padding_mask)
    batch, length = query.shape[:2]
    size = min(options.block_size, length)
    tail = -length % size
    if tail and not options.causal and key_padding_mask is None:
        # causal positions cannot see the tail; the others must be told
        key_padding_mask = key.new_zeros((batch, length), dtype=torch.bool)
    hidden = None
    if key_padding_mask is not None:
        hidden = F.pad(key_padding_mask, (0, tail), value=True).reshape(-1, 1, 1, size)

    def cut(x: Tensor) -> Tensor:
        if tail:
            x = F.pad(x, (0, 0, 0, 0, 0, tail))
        return x.unflatten(1, (-1, size)).flatten(0, 1).transpose(1, 2)  # BG, H, W, D

    q, k, v = cut(query), cut(key), cut(value)
    output = _attend(q, k, v, hidden, options, causal=options.causal)
    blocks = (length + tail) // size
    output = output.transpose(1, 2).unflatten(0, (batch, blocks)).flatten(1, 2)
    return output[:, :length].to(output_dtype(value.dtype, options.activation))


def _step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: BlockAttentionState,
    options: Options,
) -> tuple[Tensor, BlockAttentionState]:
    """One token: into its slot in place, then attention over the slots up to it."""
    block_size = state.key.shape[1]
    slot = state.length % block_size
    slot = slot[:, None, None, None]
    state.key.scatter_(1, slot.expand_as(key), key.to(state.key.dtype))
    state.value.scatter_(1, slot.expand_as(value), value.to(state.value.dtype))
    hidden = torch.arange(block_size, device=key.device) > slot
    output = _attend(
        query.transpose(1, 2),
        state.key.transpose(1, 2),
        state.value.transpose(1, 2),
        hidden,
        options,
        causal=False,
        all_see=True,
    ).transpose(1, 2)
    output = output.to(output_dtype(value.dtype, options.activation))
    return output, state._replace(length=state.length + 1)
