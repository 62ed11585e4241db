"""Dropout inside kernels: what is dropped follows from a seed and a place.

It is not stored: forward and backward pass draw it from one seed by Philox, a
counter-based generator, whose counters are row and column. The seed is drawn from
torch's CPU generator, so that the device is not waited for. ``torch.manual_seed``
reproduces it, and so does activation checkpointing, which restores that generator.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.utils._mode_utils import no_dispatch

# a probability is a number of 24 bits
DRAWN = 2**24
# how a seed is always as wide, and no other number is compiled for
SEED_BIT = 2**62
# arguments of a kernel that drops: a seed must not be compiled for
NUMBERS = ("seed", "threshold")


def draw_seed() -> int:
    """A seed of torch's CPU generator, also where a dispatch mode has no numbers."""
    with no_dispatch():
        number = torch.randint(SEED_BIT, (), dtype=torch.int64, device="cpu")
        return SEED_BIT | int(number)


def threshold_and_growth(dropout_p: float) -> tuple[int, float]:
    """Which of DRAWN numbers drop, and the factor on what is kept, if anything is."""
    return round(dropout_p * DRAWN), 1 / (1 - dropout_p) if dropout_p < 1 else 0.0


@triton.jit
def is_kept(row, seed, threshold, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """bool (ROWS, COLUMNS) of rows with the numbers ``row``, int32 (ROWS,).

    Philox gives four numbers at a time, for neighbours in a row.
    """
    zeros = tl.zeros((ROWS, COLUMNS // 4), tl.int32)
    fours = zeros + tl.arange(0, COLUMNS // 4)[None, :]
    a, b, c, d = tl.philox(seed, zeros + row[:, None], fours, zeros, zeros)
    drawn = tl.join(tl.join(a, b), tl.join(c, d)).reshape(ROWS, COLUMNS)
    return (drawn >> 8).to(tl.int32) >= threshold
