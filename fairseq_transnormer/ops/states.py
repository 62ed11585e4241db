"""What the causal attentions remember between calls.

A state is a named tuple of tensors with the batch first, or of such tuples. So one
function reorders any of them (beam search), and one counts its bytes. All have one size
whatever the length, but for ``KeyValueState`` and what modules define themselves.

Letters: B batch, M slots, H heads, D head width of queries and keys, E of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor


class State(Protocol):
    """What all states are: named tuples that know how many tokens they have seen."""

    @property
    def length(self) -> Tensor:
        """Tokens seen, (B,), int64."""

    def __iter__(self) -> Iterator[Any]: ...


StateT = TypeVar("StateT", bound=State)


class LinearAttentionState(NamedTuple):
    """State of causal linear attention after ``length`` tokens.

    key_value: sum_j k_j v_j^T, (B, H, D, E), float32 (float64 for float64 inputs).
    key_sum: sum_j k_j, (B, H, D), the same dtype; None without the sum normaliser.
    length: tokens seen, (B,), int64.
    """

    key_value: Tensor
    key_sum: Tensor | None
    length: Tensor


class BlockAttentionState(NamedTuple):
    """State of causal block attention after ``length`` tokens.

    key: keys of the current block, (B, block_size, H, D). Slots from
        ``length % block_size`` on hold nothing.
    value: values likewise, (B, block_size, H, E).
    length: tokens seen, (B,), int64.
    """

    key: Tensor
    value: Tensor
    length: Tensor


class KeyValueState(NamedTuple):
    """State of softmax attention: everything that it has seen, M slots a row.

    key: (B, M, H, D); zeros in slots without a token.
    value: (B, M, H, E), likewise.
    seen: bool (B, M), True where the slot has a token.
    length: tokens seen, (B,), int64.
    """

    key: Tensor
    value: Tensor
    seen: Tensor
    length: Tensor


class PairState(NamedTuple):
    """States of two attentions that read the same tokens."""

    first: State
    second: State

    @property
    def length(self) -> Tensor:
        """Tokens seen, (B,), int64."""
        return self.first.length


def reorder_state(state: StateT, new_order: Tensor) -> StateT:
    """Rows ``new_order`` (int64, any length) of every tensor of the state."""
    kind: Callable[..., StateT] = type(state)
    return kind(
        *(
            reorder_state(part, new_order)
            if _is_state(part)
            else None
            if part is None
            else part.index_select(0, new_order)
            for part in state
        )
    )


def join_states(states: Sequence[StateT]) -> StateT:
    """The rows of all these states, in their order, as one state.

    Tensors that differ in a size beside the batch get zeros at its end.

    Raises:
        ValueError: there is no state, or they are of several kinds, or some have a
            tensor that others lack.
    """
    found = {_form(state) for state in states}
    if len(found) != 1:
        told = " and ".join(sorted(found)) or "none"
        raise ValueError(f"states: {told}; allowed: one or more of one kind")
    kind: Callable[..., StateT] = type(states[0])
    return kind(*(_joined(parts) for parts in zip(*states, strict=True)))


def state_bytes(state: State) -> int:
    """Bytes that the tensors of the state occupy."""
    return sum(
        state_bytes(part) if _is_state(part) else part.nbytes
        for part in state
        if part is not None
    )


def _is_state(part: object) -> TypeGuard[State]:
    return isinstance(part, tuple)


def _form(state: State) -> str:
    """A state's kind, its parts' kinds if they are states, and which it lacks."""
    parts = (
        _form(part) if _is_state(part) else "None" if part is None else "tensor"
        for part in state
    )
    return f"{type(state).__name__}({', '.join(parts)})"


def _joined(parts: Sequence[Any]) -> Tensor | State | None:
    """One place of the tuples: tensors, states or None in all of them."""
    if parts[0] is None:
        return None
    if _is_state(parts[0]):
        return join_states(parts)
    sizes = [max(size) for size in zip(*(p.shape[1:] for p in parts), strict=True)]
    return torch.cat([_with_zeros(part, sizes) for part in parts])


def _with_zeros(part: Tensor, sizes: Sequence[int]) -> Tensor:
    if part.shape[1:] == tuple(sizes):
        return part
    missing = [0, 0] * part.dim()
    for i, size in enumerate(sizes, 1):
        missing[2 * (part.dim() - 1 - i) + 1] = size - part.shape[i]
    return F.pad(part, missing)
