"""Block attention with and without a state, whatever computes the blocks.

Letters: B batch, H heads, N length, W block size, D head width of queries and keys, E
of values.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..inputs import real_lengths, zero_pads
from ..rows import append_rows, gather_rows
from ..states import BlockAttentionState
from .options import Options


def attend_in_blocks(
    blocks: Callable[..., Tensor],
    step: Callable[..., tuple[Tensor, BlockAttentionState]],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: Options,
) -> tuple[Tensor, BlockAttentionState | None]:
    """What ``ops.block_attention`` returns, by an implementation's two functions.

    Args:
        blocks: (query, key, value, key_padding_mask) to the output, all blocks in
            parallel; hides the pads' keys and values, causal where there is a state.
        step: (query, key, value, state) of one token to the output and the new state;
            writes into the state's keys and values.
    """
    mask, state = options.key_padding_mask, options.initial_state
    if state is None:
        output = blocks(query, key, value, mask)
        if options.return_state:
            length = real_lengths(key, mask)
            place = length, length, options.block_size
            state = _last_block(key, value, mask, *place)
        return output, state
    if options.is_step(query, key, value):
        output, state = step(query, key, value, state)
    else:
        output, state = _continue(blocks, query, key, value, state, mask)
    return output, state if options.return_state else None


def _last_block(
    key: Tensor,
    value: Tensor,
    hidden: Tensor | None,
    end: Tensor,
    length: Tensor,
    block_size: int,
) -> BlockAttentionState:
    """The state whose current block is cut out of (B, N, ...) in front of ``end``.

    hidden: bool (B, N), True where there is no token.
    end: (B,), the index after the last token; blocks start at index 0.
    """
    place = end // block_size * block_size, end, block_size
    key, value = gather_rows(key, *place), gather_rows(value, *place)
    if hidden is not None:
        key, value = zero_pads(key, value, gather_rows(hidden, *place))
    return BlockAttentionState(key, value, length)


def _continue(
    blocks: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: BlockAttentionState,
    key_padding_mask: Tensor | None,
) -> tuple[Tensor, BlockAttentionState]:
    """Many tokens after a state.

    Each row has its own place in its block. So its tokens are laid after its cached
    keys, in a buffer whose blocks start at 0 again.
    """
    block_size, added = state.key.shape[1], query.shape[1]
    buffer_length = -(-(block_size - 1 + added) // block_size) * block_size
    offset = state.length % block_size
    index = offset[:, None] + torch.arange(added, device=query.device)

    def lay(x: Tensor, cached: Tensor | None) -> Tensor:
        return append_rows(cached, x, offset, buffer_length)

    slots = torch.arange(buffer_length, device=query.device)
    hidden = slots >= offset[:, None]
    pads = query.new_zeros((query.shape[0], added), dtype=torch.bool)
    if key_padding_mask is not None:
        pads = key_padding_mask
    hidden = hidden.scatter(1, index, pads)

    keys, values = lay(key, state.key), lay(value, state.value)
    output = blocks(lay(query, None), keys, values, hidden)
    rows = torch.arange(query.shape[0], device=query.device)[:, None]
    lengths = real_lengths(key, key_padding_mask)
    new_state = _last_block(
        keys, values, hidden, offset + lengths, state.length + lengths, block_size
    )
    return output[rows, index], new_state
