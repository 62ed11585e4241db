"""Softmax attention over everything seen: the vanilla transformer's.

Letters: B batch, N length of queries, M of keys, H heads, D head width of queries and
keys, E of values.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .inputs import (
    check_attention_inputs,
    check_dropout,
    check_state_kind,
    check_state_tensor,
    check_use_of_states,
    real_lengths,
    zero_pads,
)
from .states import KeyValueState


def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool,
    dropout_p: float = 0.0,
    key_padding_mask: Tensor | None = None,
    initial_state: KeyValueState | None = None,
    return_state: bool = False,
) -> tuple[Tensor, KeyValueState | None]:
    """o_i = sum_j softmax_j(q_i . k_j / sqrt(D)) v_j over all j, or j <= i when causal.

    By torch's ``scaled_dot_product_attention``, in time quadratic in the length.

    Args:
        query: (B, N, H, D); float64, float32, bfloat16 or float16.
        key: (B, M, H, D), the same dtype; M = N when causal.
        value: (B, M, H, E), the same dtype.
        causal: whether token i sees tokens j <= i only.
        dropout_p: probability with which a weight is dropped.
        key_padding_mask: bool (B, M), True at pads, anywhere; they take no part.
        initial_state: continue after these tokens, which may be of another number in
            each row (causal only).
        return_state: also return the state after the last token (causal only). It grows
            by M slots.

    Returns:
        (B, N, H, E) in value's dtype, zeros where a query sees nothing; and the new
        state with ``return_state``, else None.

    Raises:
        ValueError: shapes, dtypes, dropout_p or the state do not fit.
    """
    check_attention_inputs(query, key, value, key_padding_mask, same_length=causal)
    check_dropout(dropout_p)
    check_use_of_states(causal, initial_state, return_state)
    check_state_kind(initial_state, KeyValueState)
    if initial_state is not None:
        slots = initial_state.key.shape[1:2]
        for name, x in (("key", key), ("value", value)):
            shape = (*x.shape[:1], *slots, *x.shape[2:])
            check_state_tensor(name, getattr(initial_state, name), shape, x.dtype)
        rows = (key.shape[0],)
        check_state_tensor("seen", initial_state.seen, rows + slots, torch.bool)
        check_state_tensor("length", initial_state.length, rows, torch.int64)
    added = key.shape[1]
    key, value = zero_pads(key, value, key_padding_mask)
    seen = None if key_padding_mask is None else ~key_padding_mask
    before = None
    if initial_state is not None:
        seen = _all_seen(key) if seen is None else seen
        key = torch.cat((initial_state.key, key), 1)
        value = torch.cat((initial_state.value, value), 1)
        seen = torch.cat((initial_state.seen, seen), 1)
        before = initial_state.length
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    if seen is None:
        output = F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout_p, is_causal=causal
        )
    else:
        visible = _visible(seen, added if causal else None)
        # a row of -inf alone would become NaN
        blind = ~visible.any(-1, keepdim=True)
        output = F.scaled_dot_product_attention(
            q, k, v, attn_mask=visible | blind, dropout_p=dropout_p
        )
        output = output.masked_fill(blind, 0)
    output = output.transpose(1, 2)
    if not return_state:
        return output, None
    seen = _all_seen(key) if seen is None else seen
    length = real_lengths(query, key_padding_mask, before)
    return output, KeyValueState(key, value, seen, length)


def _all_seen(key: Tensor) -> Tensor:
    """bool (B, M), for slots that all have a token."""
    return torch.ones(key.shape[:2], dtype=torch.bool, device=key.device)


def _visible(seen: Tensor, added: int | None) -> Tensor:
    """bool (B, 1, N or 1, M): the slots that each query attends to.

    seen: bool (B, M). added: the last so many slots are the queries' own (causal).
    """
    visible = seen[:, None, None, :]
    if added is not None:
        slots = seen.shape[1]
        past = torch.ones(added, slots, dtype=torch.bool, device=seen.device)
        visible = visible & past.tril(slots - added)
    return visible
