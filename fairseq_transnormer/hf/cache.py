"""The states of the layers as a cache of transformers.

If each layer's state has constant size, the memory of a text does not depend on its
length. There is no step back: a state cannot forget its last token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from ..ops import join_states, reorder_state
from ..ops.states import State


class StateLayer(CacheLayerMixin):
    """The state of one layer.

    Attributes:
        state: after the tokens that were read; None before the first.
        columns: number of columns that were read, including pads.
    """

    def __init__(self):
        super().__init__()
        self.state: State | None = None
        self.columns = 0

    def lazy_initialization(self, key_states, value_states) -> None:
        """Nothing: the model makes the state."""

    def update(self, key_states, value_states, *args, **kwargs):
        """Refused: the state is not a list of keys and values."""
        raise NotImplementedError(
            "a TransNormerCache has no keys and values; allowed: the models of "
            "fairseq_transnormer.hf, which store their states"
        )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Number of columns of an attention mask, and the index of the first."""
        return self.columns + query_length, 0

    def get_seq_length(self) -> int:
        """Number of columns that were read."""
        return self.columns

    def get_max_length(self) -> int:
        """-1: no limit."""
        return -1

    def reset(self) -> None:
        """Forget all tokens."""
        self.state, self.columns = None, 0

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Row i continues row ``beam_idx[i]``."""
        if self.state is not None:
            order = beam_idx.to(self.state.length.device)
            self.state = reorder_state(self.state, order)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the rows ``indices``."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row ``repeats`` times."""
        if self.state is not None:
            rows = torch.arange(len(self.state.length))
            self.reorder_cache(rows.repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """Refused, except for 0."""
        if tokens_to_remove:
            raise ValueError(
                f"tokens_to_remove={tokens_to_remove}; allowed: 0, since the states of "
                "a TransNormerCache cannot forget their last tokens"
            )


class TransNormerCache(Cache):
    """The states of all layers.

    Args:
        layers: number of the model's layers.
    """

    def __init__(self, layers: int):
        super().__init__(layers=[StateLayer() for _ in range(layers)])

    @property
    def states(self) -> tuple[State, ...] | None:
        """States for ``CausalLanguageModel``; None before the first token."""
        states = tuple(layer.state for layer in self.layers)
        return None if states[0] is None else states

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[State, ...]]) -> TransNormerCache:
        """A cache with a copy of the states of several rows, for new texts."""
        found = cls(len(rows[0]))
        found.put(join_rows(rows), 0)
        return found

    def put(self, states: tuple[State, ...], columns: int) -> None:
        """Keep the states after ``columns`` more columns of the input."""
        for layer, state in zip(self.layers, states, strict=True):
            layer.state = state
            layer.columns += columns


def join_rows(rows: Sequence[tuple[State, ...]]) -> tuple[State, ...]:
    """A copy of the states of several rows, as a batch."""
    return tuple(join_states(of_layer) for of_layer in zip(*rows, strict=True))


def split_rows(states: tuple[State, ...]) -> list[tuple[State, ...]]:
    """A copy of the states of each row of a batch."""
    length = states[0].length
    numbers = torch.arange(len(length), device=length.device).split(1)
    return [tuple(reorder_state(each, i) for each in states) for i in numbers]
