"""What the launchers share: the layouts that the kernels take."""

from __future__ import annotations

import torch
from torch import Tensor


def with_contiguous_rows(x: Tensor) -> Tensor:
    """x, copied only if its last dimension is not contiguous."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def empty_with_rows_like(x: Tensor) -> Tensor:
    """Room for a result in the layout of x, its last dimension contiguous."""
    room = torch.empty_like(x)
    if room.stride(-1) == 1:
        return room
    return torch.empty_like(x, memory_format=torch.contiguous_format)
