"""What a call of linear attention is asked for, besides its three tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..backend import accumulation_dtype, steps_in_place
from ..feature_maps import check_feature_map
from ..inputs import (
    check_attention_inputs,
    check_state_kind,
    check_state_tensor,
    check_use_of_states,
)
from ..rms_norm import check_eps
from ..states import LinearAttentionState


class Options(NamedTuple):
    """The keywords of ``ops.linear_attention``, which documents them."""

    causal: bool
    feature_map: str = "identity"
    key_padding_mask: Tensor | None = None
    normalize: bool = False
    eps: float = 1e-6
    initial_state: LinearAttentionState | None = None
    return_state: bool = False

    def check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Raise ValueError where they do not fit the tensors or each other."""
        check_attention_inputs(query, key, value, self.key_padding_mask, self.causal)
        check_feature_map(self.feature_map)
        check_use_of_states(self.causal, self.initial_state, self.return_state)
        check_state_kind(self.initial_state, LinearAttentionState)
        if self.normalize:
            check_eps(self.eps)
        state = self.initial_state
        if state is None:
            return
        if self.normalize and state.key_sum is None:
            raise ValueError(
                "initial_state.key_sum=None with normalize=True; allowed: a state that "
                "a call with normalize=True returned"
            )
        batch, _, *heads_and_width = key.shape
        shape = (batch, *heads_and_width, value.shape[-1])
        dtype = accumulation_dtype(query.dtype)
        check_state_tensor("key_value", state.key_value, shape, dtype)
        check_state_tensor("length", state.length, shape[:1], torch.int64)
        if self.normalize and state.key_sum is not None:
            check_state_tensor("key_sum", state.key_sum, shape[:-1], dtype)

    def is_step(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Whether the call is one token that updates the state in place."""
        state = self.initial_state
        if state is None or query.shape[1] != 1:
            return False
        sums = state.key_value, state.key_sum if self.normalize else None
        return steps_in_place(sums, query, key, value)
