"""Rows of a buffer at an index of its own for each sequence of the batch.

A state holds tokens in the slots of a buffer, and the sequences of a batch are not
equally far in it.

Letters: B batch, N and M lengths.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def append_rows(cached: Tensor | None, x: Tensor, start: Tensor, slots: int) -> Tensor:
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


def gather_rows(x: Tensor, start: Tensor, end: Tensor, slots: int) -> Tensor:
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
