"""Inputs of the attention ops: their checks, and pads.

Letters: B batch, N length of queries, M of keys, H heads, D head width of queries and
keys, E of values.
"""

from __future__ import annotations

import torch
from torch import Tensor

# float8 is a floating-point dtype too, but one of storage
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_NAMES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
DTYPE_NAMES = f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}"


def check_attention_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    same_length: bool,
) -> None:
    """Raise ValueError, naming the tensor, where shapes or dtypes do not fit.

    Args:
        query: (B, N, H, D).
        key: (B, M, H, D).
        value: (B, M, H, E).
        key_padding_mask: None or bool (B, M), True at pads.
        same_length: whether M must equal N.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 4:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; "
                "allowed: (batch, length, heads, head width)"
            )
        if tensor.dtype != query.dtype or tensor.dtype not in DTYPES:
            raise ValueError(
                f"{name} has dtype {tensor.dtype} beside query {query.dtype}; "
                f"allowed: one floating-point dtype for all three, {DTYPE_NAMES}"
            )
        if 0 in tensor.shape[2:]:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; allowed: 1 or more heads, of "
                "width 1 or more"
            )
    if query.shape[1] == 0 or key.shape[1] == 0:
        raise ValueError("query or key has length 0; allowed: 1 or more")
    if query.shape[::3] + query.shape[2:3] != key.shape[::3] + key.shape[2:3]:
        raise ValueError(
            f"key has shape {tuple(key.shape)} beside query {tuple(query.shape)}; "
            "batch, heads and head width must agree"
        )
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(
            f"value has shape {tuple(value.shape)} beside key {tuple(key.shape)}; "
            "batch, length and heads must agree"
        )
    if same_length and query.shape[1] != key.shape[1]:
        raise ValueError(
            f"query has length {query.shape[1]} and key {key.shape[1]}; "
            "they must be equal here"
        )
    if key_padding_mask is not None and (
        key_padding_mask.shape != key.shape[:2] or key_padding_mask.dtype != torch.bool
    ):
        raise ValueError(
            f"key_padding_mask is {key_padding_mask.dtype} "
            f"{tuple(key_padding_mask.shape)}; allowed: torch.bool, "
            f"(batch, key length) = {tuple(key.shape[:2])}"
        )


def check_block_size(block_size: int) -> None:
    """Raise ValueError unless it is a number of positions."""
    if not isinstance(block_size, int) or block_size < 1:
        raise ValueError(f"block_size={block_size!r}; allowed: integers, 1 or more")


def check_dropout(dropout_p: float) -> None:
    """Raise ValueError unless it is a probability below 1."""
    if not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p={dropout_p}; allowed: 0 <= p < 1")


def check_use_of_states(causal: bool, state: object, return_state: bool) -> None:
    """Raise ValueError for a state given to, or asked of, what is not causal."""
    if not causal and (state is not None or return_state):
        raise ValueError(
            "causal=False with a state; allowed: states with causal=True only"
        )


def check_state_kind(state: object, kind: type) -> None:
    """Raise ValueError where another attention, or none, made a state."""
    if state is not None and not isinstance(state, kind):
        raise ValueError(
            f"state of {type(state).__name__}; allowed here: {kind.__name__}, as the "
            "same attention returned it"
        )


def check_state_tensor(
    name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Raise ValueError where other inputs than these made a tensor of a state."""
    if tensor.shape != shape or tensor.dtype != dtype:
        raise ValueError(
            f"initial_state.{name} is {tensor.dtype} {tuple(tensor.shape)}; "
            f"allowed for these inputs: {dtype} {shape}"
        )


def check_memory_of_rows(state: Tensor) -> None:
    """Raise ValueError where rows share memory, into which each would write."""
    sizes_and_strides = zip(state.shape, state.stride(), strict=True)
    if any(size > 1 and stride == 0 for size, stride in sizes_and_strides):
        raise ValueError(
            f"initial_state has an expanded tensor, strides {state.stride()}, and a "
            "call with one token writes into it; allowed: memory for each row"
        )


def zero_pads(
    key: Tensor, value: Tensor, key_padding_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Zero keys and values at pads, so that not even NaN or inf there can leak."""
    if key_padding_mask is None:
        return key, value
    pads = key_padding_mask[:, :, None, None]
    return key.masked_fill(pads, 0), value.masked_fill(pads, 0)


def real_lengths(
    tensor: Tensor, key_padding_mask: Tensor | None, before: Tensor | None = None
) -> Tensor:
    """How many tokens of each row are no pads, besides those ``before``.

    Args:
        tensor: (B, N, ...).
        key_padding_mask: bool (B, N), True at pads, or None.
        before: int64 (B,), or None for none.

    Returns:
        int64 (B,).
    """
    batch, length = tensor.shape[:2]
    if key_padding_mask is not None:
        real = (~key_padding_mask).sum(1)
        return real if before is None else before + real
    if before is not None:
        return before + length
    return torch.full((batch,), length, dtype=torch.int64, device=tensor.device)
