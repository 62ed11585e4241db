"""Trials of kernels that drop: they draw, and torch follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .trials import Mismatch

# of the trials
DROPOUT_P = 0.25


def seeded(
    function: Callable[..., Any], *arguments: Any, seed: int = 1, **keywords: Any
) -> Any:
    """What a function returns that draws its seed from torch's CPU generator.

    That generator and those of GPUs stay as they are.
    """
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed)
    try:
        return function(*arguments, **keywords)
    finally:
        generator.set_state(before)


def check_factors(
    found: Tensor,
    others: Tensor,
    dropout_p: float,
    neighbours: Mapping[str, int],
    *,
    used: Tensor | None = None,
    rounding: float = 1e-5,
) -> None:
    """Whether dropout is what it should be, for two seeds.

    Args:
        found, others: what a kernel multiplies by, by one seed and by another.
        dropout_p: how often that should be 0.
        neighbours: names of dimensions, in which neighbours must be independent.
        used: where there are factors; None for everywhere.
        rounding: relative, of what is kept.

    Raises:
        Mismatch: the factors are not 0 or 1 / (1 - p), not as often as they should,
            not drawn anew for another seed, or not independent of their neighbours.
    """
    if used is None:
        used = torch.ones_like(found, dtype=torch.bool)
    kept = found > 0
    wrong = (found[kept & used] * (1 - dropout_p) - 1).abs().amax()
    if not wrong < rounding:
        raise Mismatch("dropout does not multiply what it keeps by 1 / (1 - p)")
    agreeing = dropout_p**2 + (1 - dropout_p) ** 2
    shares = [
        ("keeps", kept, used, 1 - dropout_p),
        ("agrees with another seed in", kept == (others > 0), used, agreeing),
    ]
    for name, dim in neighbours.items():
        pairs = found.shape[dim] - 1
        (one, other), (there, and_there) = (
            (x.narrow(dim, 0, pairs), x.narrow(dim, 1, pairs)) for x in (kept, used)
        )
        what = f"agrees with the next {name} in"
        shares.append((what, one == other, there & and_there, agreeing))
    for what, share, where, expected in shares:
        share = share[where]
        measured = float(share.double().mean())
        spread = (expected * (1 - expected) / share.numel()) ** 0.5
        if not abs(measured - expected) < 6 * spread:
            raise Mismatch(f"dropout {what} {measured:.3f}, not {expected:.3f}")
