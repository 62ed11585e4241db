"""Calls of causal attentions on random inputs, for the benchmarks of their forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..harness.phases import FORWARD


class Contestant(NamedTuple):
    """A causal attention; its layout is (batch, length, heads, head width), or
    (batch, heads, length, head width) without ``length_first``."""

    attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    length_first: bool = True


def make_call(
    contestant: Contestant, mode: str, shape: tuple[int, int, int, int], **placement
) -> Callable[[], object]:
    """One measured call, on random inputs in the layout that the contestant likes.

    Args:
        contestant: the attention.
        mode: ``FORWARD``, without autograd, or ``TRAINING``.
        shape: batch, length, heads, head width.
        placement: device and dtype.
    """
    batch, length, heads, width = shape
    if not contestant.length_first:
        shape = batch, heads, length, width
    query, key, value, grad = (torch.randn(shape, **placement) for _ in range(4))

    def forward() -> Tensor:
        with torch.no_grad():
            return contestant.attend(query, key, value)

    def forward_and_backward() -> tuple[Tensor, ...]:
        inputs = [x.requires_grad_() for x in (query, key, value)]
        output = contestant.attend(*inputs)
        # where queries are the keys, the keys given are not used
        return torch.autograd.grad(output, inputs, grad, allow_unused=True)

    return forward if mode == FORWARD else forward_and_backward
