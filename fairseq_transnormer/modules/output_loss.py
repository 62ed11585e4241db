"""The cross entropy of an output layer that has to be called, of all its logits."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from ..ops.backend import accumulation_dtype


def loss_of_logits(
    layer: Callable[[Tensor], Tensor],
    features: Tensor,
    targets: Tensor,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """``ops.linear_cross_entropy`` of any layer: its sum, and (...) of each target.

    Args:
        layer: (..., C) to logits (..., V), e.g. a wrapped one.
        features: (..., C).
        targets: int64 (...), in 0 ... V - 1 or ``ignore_index``.
        ignore_index: value of targets that do not count.
    """
    logits = layer(features)
    losses = F.cross_entropy(
        logits.flatten(0, -2).to(accumulation_dtype(logits.dtype)),
        targets.flatten(),
        ignore_index=ignore_index,
        reduction="none",
    )
    return losses.sum(), losses.detach().view(targets.shape)
