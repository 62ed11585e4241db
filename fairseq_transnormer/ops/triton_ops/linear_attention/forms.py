"""Which kernels a causal call launches, for their trials.

Letters: B batch, N length, H heads.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ...backend import multiprocessors
from .options import causal_plan

# forward and backward
FORMS = (
    "short/short",
    "segments/segments",
    "segments/one segment",
    "one segment/one segment",
)
HEADS = 4
LENGTHS = (200, 1100)


def form_of(query: Tensor, value: Tensor, normalize: bool) -> str:
    """Which of FORMS a causal call with these tensors takes."""
    return _form(query.shape, value.shape[-1], query.dtype, query.device, normalize)


def sizes_of_form(
    form: str,
    widths: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
    normalize: bool,
) -> list[tuple[int, int]]:
    """(B, N) of the smallest and the largest call that takes a form with HEADS heads.

    Lengths fill no last chunk; the largest has more programs than run at once. Only the
    smallest for the interpreter, which runs one program after the other.
    """
    found = []
    for batch in (1, 2, *range(4, 2 * multiprocessors(device) + 4, 4)):
        for length in LENGTHS:
            shape = (batch, length, HEADS, widths[0])
            if _form(shape, widths[1], dtype, device, normalize) == form:
                found.append((batch, length))
    return found[:1] if device.type != "cuda" else [found[0], found[-1]]


# an op asks at every call
@functools.lru_cache(maxsize=4096)
def _form(
    shape: tuple[int, ...],
    value_width: int,
    dtype: torch.dtype,
    device: torch.device,
    normalize: bool,
) -> str:
    one = torch.empty(1, dtype=dtype, device=device)
    tensors = one.expand(shape), one.expand(*shape[:-1], value_width)
    plans = (
        causal_plan(name, *tensors, normalize=normalize)
        for name in ("forward", "backward")
    )
    return "/".join(
        "short" if plan.short else "segments" if plan.several else "one segment"
        for plan in plans
    )
