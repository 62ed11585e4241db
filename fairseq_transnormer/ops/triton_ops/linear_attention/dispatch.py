"""Linear attention in Triton: which form takes a call. Nothing uses atomics.

Letters: B batch, H heads, N length, D head width of queries and keys, E of values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...attention_inputs import real_lengths
from ...states import LinearAttentionState
from ..launching import with_near_tokens
from .bidirectional import bidirectional_linear_attention
from .causal import causal_linear_attention
from .step import linear_attention_step


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool,
    feature_map: str = "identity",
    key_padding_mask: Tensor | None = None,
    normalize: bool = False,
    eps: float = 1e-6,
    initial_state: LinearAttentionState | None = None,
    return_state: bool = False,
):
    """The Triton implementation of ``ops.linear_attention``, without ``normalize``."""
    query, key, value = (with_near_tokens(x) for x in (query, key, value))
    pads = None
    if key_padding_mask is not None:
        pads = key_padding_mask.contiguous().view(torch.uint8)
    if not causal:
        return bidirectional_linear_attention(query, key, value, pads, feature_map)[0]
    state = None if initial_state is None else initial_state.key_value
    needs_grad = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (query, key, value, state)
    )
    if state is not None and query.shape[1] == 1 and not needs_grad:
        (output,) = linear_attention_step(query, key, value, pads, state, feature_map)
    else:
        output, state = causal_linear_attention(
            query, key, value, state, pads, feature_map, return_state
        )
    if not return_state:
        return output
    if initial_state is None:
        length = real_lengths(key, key_padding_mask)
    elif key_padding_mask is None:
        length = initial_state.length + key.shape[1]
    else:
        length = initial_state.length + real_lengths(key, key_padding_mask)
    return output, LinearAttentionState(state, None, length)
