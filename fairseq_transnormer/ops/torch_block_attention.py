"""Block-diagonal attention in torch: whole blocks at once, and one-token steps.

Letters: B batch, H heads, N length, G blocks, W block size, D head width of queries and
keys, E of values.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention_inputs import real_lengths, zero_pads
from .precision import accumulation_dtype, autocast_disabled, unscaled_output_dtype
from .states import BlockAttentionState


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
    """The torch implementation of ``ops.block_attention``."""
    key, value = zero_pads(key, value, key_padding_mask)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    options = {"activation": activation, "scale": scale, "dropout_p": dropout_p}
    with autocast_disabled(query):
        if initial_state is None:
            output = _blocks(
                query, key, value, block_size, causal, key_padding_mask, **options
            )
            if not return_state:
                return output
            length = real_lengths(key, key_padding_mask)
            return output, _last_block(key, value, length, length, block_size)
        needs_grad = torch.is_grad_enabled() and any(
            x.requires_grad for x in (query, key, value, *initial_state)
        )
        if query.shape[1] == 1 and key_padding_mask is None and not needs_grad:
            output, state = _step(query, key, value, initial_state, **options)
        else:
            output, state = _continue(
                query, key, value, initial_state, key_padding_mask, **options
            )
    return (output, state) if return_state else output


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    hidden: Tensor | None,
    *,
    causal: bool,
    activation: str,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """P v with P = activation(scale * q k^T), (..., H, W, E) in float32 (float64).

    hidden: bool, True where P must be 0, besides what is hidden by ``causal``.
    """
    dtype = accumulation_dtype(q.dtype)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if activation == "softmax" and hidden is None and dropout_p == 0:
        # keeps no scores for the backward pass
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    if causal:
        size = q.shape[-2]
        future = torch.ones((size, size), dtype=torch.bool, device=q.device).triu(1)
        hidden = future if hidden is None else hidden | future
    scores = (q * scale) @ k.transpose(-1, -2)
    if activation == "relu":
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


def _output_dtype(dtype: torch.dtype, activation: str) -> torch.dtype:
    return unscaled_output_dtype(dtype) if activation == "relu" else dtype


def _blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_size: int,
    causal: bool,
    key_padding_mask: Tensor | None,
    **options,
) -> Tensor:
    """All blocks in parallel: (B, N, H, E)."""
    batch, length = query.shape[:2]
    size = min(block_size, length)
    tail = -length % size
    if tail and not causal and key_padding_mask is None:
        # causal positions cannot see the tail; the others must be told
        key_padding_mask = key.new_zeros((batch, length), dtype=torch.bool)
    hidden = None
    if key_padding_mask is not None:
        hidden = F.pad(key_padding_mask, (0, tail), value=True).view(-1, 1, 1, size)

    def cut(x: Tensor) -> Tensor:
        if tail:
            x = F.pad(x, (0, 0, 0, 0, 0, tail))
        return x.unflatten(1, (-1, size)).flatten(0, 1).transpose(1, 2)  # BG, H, W, D

    output = _attend(cut(query), cut(key), cut(value), hidden, causal=causal, **options)
    output = output.transpose(1, 2).unflatten(0, (batch, -1)).flatten(1, 2)
    return output[:, :length].to(_output_dtype(value.dtype, options["activation"]))


def _last_block(
    key: Tensor, value: Tensor, end: Tensor, length: Tensor, block_size: int
) -> BlockAttentionState:
    """The state whose current block is cut out of (B, N, ...) in front of ``end``.

    end: (B,), the index behind the last token; blocks start at index 0.
    """
    start = end // block_size * block_size
    slots = torch.arange(block_size, device=key.device)
    index = (start[:, None] + slots).clamp(max=key.shape[1] - 1)
    empty = (start[:, None] + slots >= end[:, None])[:, :, None, None]
    rows = torch.arange(key.shape[0], device=key.device)[:, None]
    return BlockAttentionState(
        key[rows, index].masked_fill(empty, 0),
        value[rows, index].masked_fill(empty, 0),
        length,
    )


def _step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: BlockAttentionState,
    **options,
) -> tuple[Tensor, BlockAttentionState]:
    """One token: into its slot in place, then attention over the slots up to it."""
    block_size = state.key.shape[1]
    slot = state.length % block_size
    index = slot[:, None, None, None]
    state.key.scatter_(1, index.expand_as(key), key.to(state.key.dtype))
    state.value.scatter_(1, index.expand_as(value), value.to(state.value.dtype))
    slots = torch.arange(block_size, device=key.device)
    hidden = (slots > slot[:, None])[:, None, None, :]
    output = _attend(
        query.transpose(1, 2),
        state.key.transpose(1, 2),
        state.value.transpose(1, 2),
        hidden,
        causal=False,
        **options,
    ).transpose(1, 2)
    output = output.to(_output_dtype(value.dtype, options["activation"]))
    return output, state._replace(length=state.length + 1)


def _continue(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: BlockAttentionState,
    key_padding_mask: Tensor | None,
    **options,
) -> tuple[Tensor, BlockAttentionState]:
    """Many tokens behind a state.

    Each row has its own place in its block, so its tokens are laid behind its cached
    keys in a buffer whose blocks start at 0 again.
    """
    block_size, added = state.key.shape[1], query.shape[1]
    buffer_length = -(-(block_size - 1 + added) // block_size) * block_size
    offset = state.length % block_size
    index = offset[:, None] + torch.arange(added, device=query.device)

    def lay(x: Tensor, cached: Tensor | None) -> Tensor:
        buffer = x.new_zeros((x.shape[0], buffer_length, *x.shape[2:]))
        if cached is not None:
            buffer[:, :block_size] = cached
        return buffer.scatter(1, index[:, :, None, None].expand_as(x), x)

    slots = torch.arange(buffer_length, device=query.device)
    hidden = slots >= offset[:, None]
    pads = query.new_zeros((query.shape[0], added), dtype=torch.bool)
    if key_padding_mask is not None:
        pads = key_padding_mask
    hidden = hidden.scatter(1, index, pads)

    keys, values = lay(key, state.key), lay(value, state.value)
    keys, values = zero_pads(keys, values, hidden)
    output = _blocks(
        lay(query, None), keys, values, block_size, True, hidden, **options
    )
    rows = torch.arange(query.shape[0], device=query.device)[:, None]
    lengths = real_lengths(key, key_padding_mask)
    new_state = _last_block(
        keys, values, offset + lengths, state.length + lengths, block_size
    )
    return output[rows, index], new_state
