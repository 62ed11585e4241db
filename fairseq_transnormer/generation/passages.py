"""Texts in the making, and batches of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ops import join_states, reorder_state
from ..ops.states import State


@dataclass
class Passage:
    """A text in the making.

    ``unread`` tokens stand after ``states``; the last ``forced`` of them begin the
    line that is generated next.
    """

    number: int
    unread: list[int]
    forced: int
    states: tuple[State, ...] | None = None
    lines: list[list[int]] = field(default_factory=list)
    positional_scores: list[float] = field(default_factory=list)

    def can_run_with(self) -> tuple[int, int, bool]:
        """Passages with equal ones can run as one batch."""
        return len(self.unread), self.forced, self.states is None


def join_rows(states: list[tuple[State, ...] | None]) -> tuple[State, ...] | None:
    """One batch of the states of several rows, layer by layer."""
    if states[0] is None:
        return None
    return tuple(join_states(of_layer) for of_layer in zip(*states, strict=True))


def take_row(states: tuple[State, ...], row: int) -> tuple[State, ...]:
    """One row of the states of a batch."""
    order = states[0].length.new_tensor([row])
    return tuple(reorder_state(state, order) for state in states)
