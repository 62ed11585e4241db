"""What a call of block attention is asked for, besides its three tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..backend import steps_in_place, unscaled_output_dtype
from ..inputs import (
    check_attention_inputs,
    check_block_size,
    check_dropout,
    check_state_kind,
    check_state_tensor,
    check_use_of_states,
)
from ..states import BlockAttentionState

ACTIVATIONS = ("softmax", "relu")


def output_dtype(dtype: torch.dtype, activation: str) -> torch.dtype:
    """Of the output for values of ``dtype``: ReLU's weights make no average."""
    return unscaled_output_dtype(dtype) if activation == "relu" else dtype


class Options(NamedTuple):
    """The keywords of ``ops.block_attention``, which documents them."""

    block_size: int
    causal: bool
    activation: str
    scale: float | None
    dropout_p: float = 0.0
    key_padding_mask: Tensor | None = None
    initial_state: BlockAttentionState | None = None
    return_state: bool = False

    def check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Raise ValueError where they do not fit the tensors or each other."""
        check_attention_inputs(query, key, value, self.key_padding_mask, True)
        check_block_size(self.block_size)
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation={self.activation!r}; allowed: {', '.join(ACTIVATIONS)}"
            )
        check_dropout(self.dropout_p)
        check_use_of_states(self.causal, self.initial_state, self.return_state)
        check_state_kind(self.initial_state, BlockAttentionState)
        state = self.initial_state
        if state is None:
            return
        if state.key.shape[1] != self.block_size:
            raise ValueError(
                f"initial_state holds blocks of {state.key.shape[1]}; allowed: "
                f"block_size={self.block_size}"
            )
        for name, x in (("key", key), ("value", value)):
            shape = (x.shape[0], self.block_size, *x.shape[2:])
            check_state_tensor(name, getattr(state, name), shape, x.dtype)
        check_state_tensor("length", state.length, (key.shape[0],), torch.int64)

    def score_factor(self, query: Tensor) -> float:
        """The factor on q k^T."""
        return query.shape[-1] ** -0.5 if self.scale is None else float(self.scale)

    def is_step(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Whether the call is one token that goes into the state's slots in place."""
        state = self.initial_state
        if state is None or query.shape[1] != 1 or self.key_padding_mask is not None:
            return False
        return steps_in_place(state, query, key, value)
