"""Block attention with and without a state, whatever computes the blocks.

A state holds tokens in the slots of a buffer. Rows of a batch are not equally far, so
each has its tokens laid into slots, and cut out of them, at an index of its own.

Letters: B batch, H heads, N length, W block size, D head width of queries and keys, E
of values.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention_inputs import real_lengths, zero_pads
from .backend import steps_in_place, unscaled_output_dtype
from .states import BlockAttentionState


def output_dtype(dtype: torch.dtype, activation: str) -> torch.dtype:
    """dtype of the output for values of ``dtype``: ReLU's weights make no average."""
    return unscaled_output_dtype(dtype) if activation == "relu" else dtype


def attend_in_blocks(
    blocks: Callable[..., Tensor],
    step: Callable[..., tuple[Tensor, BlockAttentionState]],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    block_size: int,
    key_padding_mask: Tensor | None,
    initial_state: BlockAttentionState | None,
    return_state: bool,
) -> tuple[Tensor, BlockAttentionState | None]:
    """What ``ops.block_attention`` returns, by an implementation's two functions.

    Args:
        blocks: (query, key, value, key_padding_mask) to the output, all blocks in
            parallel; hides the pads' keys and values, causal where there is a state.
        step: (query, key, value, state) of one token to the output and the new state;
            writes into the state's keys and values.
    """
    if initial_state is None:
        output = blocks(query, key, value, key_padding_mask)
        if not return_state:
            return output, None
        length = real_lengths(key, key_padding_mask)
        return output, _last_block(
            key, value, key_padding_mask, length, length, block_size
        )
    if is_step(query, key, value, key_padding_mask, initial_state):
        output, state = step(query, key, value, initial_state)
    else:
        output, state = _continue(
            blocks, query, key, value, initial_state, key_padding_mask
        )
    return output, state if return_state else None


def is_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    initial_state: BlockAttentionState,
) -> bool:
    """Whether a call is one token that goes into the state's slots in place."""
    if query.shape[1] != 1 or key_padding_mask is not None:
        return False
    return steps_in_place(initial_state, query, key, value)


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
    key, value = cut_out(key, *place), cut_out(value, *place)
    if hidden is not None:
        key, value = zero_pads(key, value, cut_out(hidden, *place))
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

    Each row has its own place in its block, so its tokens are laid after its cached
    keys in a buffer whose blocks start at 0 again.
    """
    block_size, added = state.key.shape[1], query.shape[1]
    buffer_length = -(-(block_size - 1 + added) // block_size) * block_size
    offset = state.length % block_size
    index = offset[:, None] + torch.arange(added, device=query.device)

    def lay(x: Tensor, cached: Tensor | None) -> Tensor:
        return lay_after(cached, x, offset, buffer_length)

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


def lay_after(cached: Tensor | None, x: Tensor, start: Tensor, slots: int) -> Tensor:
    """A buffer that begins with ``cached`` and has x's rows from slot ``start`` on.

    Args:
        cached: (B, M, ...), M <= slots; None for zeros.
        x: (B, N, ...); slots start ... start + N - 1 must exist.
        start: (B,), int64.
        slots: length of the buffer.

    Returns:
        (B, slots, ...), in x's dtype; zeros where nothing was laid.
    """
    buffer = x.new_zeros((x.shape[0], slots, *x.shape[2:]))
    if cached is not None:
        buffer[:, : cached.shape[1]] = cached
    index = start[:, None] + torch.arange(x.shape[1], device=x.device)
    return buffer.scatter(1, _over_last(index, x).expand_as(x), x)


def cut_out(x: Tensor, start: Tensor, end: Tensor, slots: int) -> Tensor:
    """Slots start ... start + slots - 1 of each row; zeros from slot ``end`` on.

    Args:
        x: (B, M, ...).
        start, end: (B,), int64.
        slots: how many.

    Returns:
        (B, slots, ...).
    """
    wanted = start[:, None] + torch.arange(slots, device=x.device)
    rows = torch.arange(x.shape[0], device=x.device)[:, None]
    taken = x[rows, wanted.clamp(max=x.shape[1] - 1)]
    return taken.masked_fill(_over_last(wanted >= end[:, None], x), 0)


def pad_slots(x: Tensor, multiple: int) -> Tensor:
    """x (B, N, ...) with zeros after it, N a multiple of ``multiple``."""
    return F.pad(x, (0, 0) * (x.dim() - 2) + (0, -x.shape[1] % multiple))


def tiles(x: Tensor, size: int, left: int, right: int, fill: bool = False) -> Tensor:
    """(B, M, ...) -> (B, T, left + size + right, ...): tiles with their neighbours."""
    right_pads = -x.shape[1] % size + right
    x = F.pad(x, (0, 0) * (x.dim() - 2) + (left, right_pads), value=fill)
    return x.unfold(1, left + size + right, size).movedim(-1, 2)


def _over_last(index: Tensor, x: Tensor) -> Tensor:
    """index (B, N) shaped to go with x (B, M, ...)."""
    return index.reshape(*index.shape, *[1] * (x.dim() - 2))
