"""Modules whose numbers half precision would spoil."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Float32Module(nn.Module):
    """Keeps its parameters and buffers in float32 when a model is halved.

    ``.half()`` and ``.bfloat16()`` leave them alone; devices and float64 work as ever.
    """

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "Float32Module":
        def keep_float32(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            if moved.dtype in (torch.float16, torch.bfloat16):
                return tensor.to(moved.device)
            return moved

        return super()._apply(keep_float32, recurse)
