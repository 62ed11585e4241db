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
    "segments/segments",
    "segments/one segment",
    "one segment/one segment",
)
LENGTHS = (200, 1100)


def form_of(query: Tensor, value: Tensor) -> str:
    """Which of FORMS a causal call with these tensors takes."""
    return _form(query.shape, value.shape[-1], query.dtype, query.device)


def sizes_of_form(
    form: str,
    widths: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> list[tuple[int, int, int]]:
    """(B, H, N) of a small and of a large call that takes a form; none if none does.

    Lengths fill no last chunk; the large one has more programs than run at once. Only
    the small one for the interpreter, which runs one program after the other.
    """
    most = multiprocessors(device)
    batches = [(batch, 2) for batch in (1, 2, 3)]
    batches += [(batch, 4) for batch in range(2, most + 4, 2)]
    batches = [(1, 1), *batches]
    found = [
        (batch, heads, length)
        for batch, heads in batches
        for length in LENGTHS
        if _form((batch, length, heads, widths[0]), widths[1], dtype, device) == form
    ]
    # three rows, where there are pads, if they may be few
    few = [size for size in found if size[0] == 3 and size[1] == 2] or found
    many = sorted(found, key=lambda size: (size[2], -size[0] * size[1]))
    return few[:1] if device.type != "cuda" else few[:1] + many[:1]


# an op asks at every call
@functools.lru_cache(maxsize=4096)
def _form(
    shape: tuple[int, ...],
    value_width: int,
    dtype: torch.dtype,
    device: torch.device,
) -> str:
    one = torch.empty(1, dtype=dtype, device=device)
    tensors = one.expand(shape), one.expand(*shape[:-1], value_width)
    plans = (causal_plan(name, *tensors) for name in ("forward", "backward"))
    return "/".join("segments" if plan.several else "one segment" for plan in plans)
