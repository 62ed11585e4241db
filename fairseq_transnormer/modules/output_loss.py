"""The cross entropy of an output layer, where possible without its logits."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from ..ops import linear_cross_entropy
from ..ops.backend import accumulation_dtype
from .plain_modules import all_plain


def output_loss(
    layer: nn.Module,
    features: Tensor,
    targets: Tensor,
    ignore_index: int,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """The cross entropy of an output layer.

    A linear layer computes some rows of logits at a time, a wrapped layer all of them.

    Args:
        layer: (..., C) to logits (..., V).
        features: (..., C).
        targets: int64 (...), in 0 ... V - 1 or ``ignore_index``.
        ignore_index: value of targets that do not count.
        backend: see ``ops.linear_cross_entropy``.

    Returns:
        its sum, and (...) of each target, which has no gradient.
    """
    plain = all_plain(nn.Linear, layer, with_bias=False)
    if not (plain and isinstance(layer, nn.Linear)):  # said twice for mypy
        return loss_of_logits(layer, features, targets, ignore_index)
    return linear_cross_entropy(
        features,
        layer.weight,
        targets,
        layer.bias,
        ignore_index=ignore_index,
        backend=backend,
    )


def loss_of_logits(
    layer: Callable[[Tensor], Tensor],
    features: Tensor,
    targets: Tensor,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """``output_loss`` for any layer, which is called."""
    logits = layer(features)
    losses = F.cross_entropy(
        logits.flatten(0, -2).to(accumulation_dtype(logits.dtype)),
        targets.flatten(),
        ignore_index=ignore_index,
        reduction="none",
    )
    return losses.sum(), losses.detach().view(targets.shape)
