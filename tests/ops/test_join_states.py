"""join_states undoes taking rows."""

import pytest
import torch

from fairseq_transnormer.ops import (
    BlockAttentionState,
    KeyValueState,
    LinearAttentionState,
    PairState,
    join_states,
    reorder_state,
    state_bytes,
)
from tests.messages import refuses

STATES = [
    LinearAttentionState(torch.rand(3, 2, 4, 5), None, torch.arange(3)),
    LinearAttentionState(
        torch.rand(3, 2, 4, 5), torch.rand(3, 2, 4), torch.tensor([4, 0, 9])
    ),
    BlockAttentionState(
        torch.rand(3, 8, 2, 4), torch.rand(3, 8, 2, 5), torch.arange(3)
    ),
    KeyValueState(
        torch.rand(3, 7, 2, 4),
        torch.rand(3, 7, 2, 5),
        torch.rand(3, 7) < 0.5,
        torch.arange(3),
    ),
]
STATES.append(PairState(STATES[0], STATES[3]))


def tensors(state):
    for part in state:
        if isinstance(part, tuple):
            yield from tensors(part)
        else:
            yield part


@pytest.mark.parametrize("state", STATES)
def test_rows_of_a_state_join_to_it(state):
    rows = [reorder_state(state, torch.tensor(i)) for i in ([0], [1, 2])]
    joined = join_states(rows)
    assert type(joined) is type(state)
    for ours, original in zip(tensors(joined), tensors(state), strict=True):
        if original is None:
            assert ours is None
        else:
            assert torch.equal(ours, original)


def test_what_grew_differently_gets_empty_slots():
    rows = [
        KeyValueState(
            torch.ones(1, slots, 2, 4),
            torch.ones(1, slots, 2, 5),
            torch.ones(1, slots, dtype=torch.bool),
            torch.tensor([slots]),
        )
        for slots in (3, 7, 5)
    ]
    for states in (rows, [PairState(row, row) for row in rows]):
        joined = join_states(states)
        joined = joined if states is rows else joined.second
        assert joined.key.shape == (3, 7, 2, 4) and joined.value.shape == (3, 7, 2, 5)
        for b, slots in enumerate((3, 7, 5)):
            assert joined.seen[b].tolist() == [True] * slots + [False] * (7 - slots)
            assert (joined.key[b, :slots] == 1).all()
            assert (joined.key[b, slots:] == 0).all()
        assert joined.length.tolist() == [3, 7, 5]


@pytest.mark.parametrize("state", STATES)
def test_bytes(state):
    expected = sum(
        t.numel() * t.element_size() for t in tensors(state) if t is not None
    )
    assert state_bytes(state) == expected


def test_states_of_one_kind_join():
    plain, with_sum, block = STATES[:3]
    for states, parts in (
        ([], ["none"]),
        ([plain, block], ["LinearAttentionState", "BlockAttentionState"]),
        # its sum of keys would be lost
        ([plain, with_sum], ["LinearAttentionState", "None"]),
        ([with_sum, plain], ["LinearAttentionState", "None"]),
    ):
        with refuses(ValueError, *parts, "one kind"):
            join_states(states)
