"""Linear layers of one input as one: their weights under each other.

Letters: I and O inputs and outputs of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# half-precision products want rows of whole 16-byte pieces
MULTIPLE = 8


def padded(width: int) -> int:
    """The next multiple of ``MULTIPLE``."""
    return -(-width // MULTIPLE) * MULTIPLE


def zeros_between(weight: Tensor, most: int) -> Tensor:
    """Zeros for the gaps that ``packed_rows`` and ``padded_columns`` leave.

    Args:
        weight: (O, I), for the device and the dtype, and O, the width to be padded.
        most: rows or columns to be padded at a time.
    """
    return weight.new_zeros((padded(len(weight)) - len(weight)) * most)


def packed_rows(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    zeros: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """One layer whose outputs are those of all, in one copy of the parameters.

    Args:
        weights: (O, I) each.
        biases: (O,) each.
        zeros: see ``zeros_between``.
        dtype: of the result.

    Returns:
        weight (L P, I) and bias (L P,) for L layers. P is O up to the next multiple of
        ``MULTIPLE``; the rows and numbers in between are zero.
    """
    outputs, inputs = weights[0].shape
    missing = padded(outputs) - outputs
    parts = []
    for tensors in (weights, biases):
        for x in tensors:
            gap = zeros[: missing * x[0].numel()]
            parts += [x.reshape(-1), gap] if missing else [x.reshape(-1)]
    # one kernel for all of them
    both = torch.cat(parts).to(dtype)
    rows = len(weights) * padded(outputs)
    return both[: rows * inputs].view(rows, inputs), both[rows * inputs :]


def padded_columns(weight: Tensor, zeros: Tensor, dtype: torch.dtype) -> Tensor:
    """(O, I) with columns of zeros up to the next multiple of ``MULTIPLE``."""
    outputs, inputs = weight.shape
    missing = padded(inputs) - inputs
    if missing:
        gap = zeros[: outputs * missing].view(outputs, missing)
        weight = torch.cat((weight, gap), 1)
    return weight.to(dtype)
