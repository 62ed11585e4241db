"""What the launchers share: layouts, devices, and leaving a launch out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

_thread = threading.local()
# elements from a token to the next with which offsets in a tile of 64 fit 32 bits
FARTHEST_TOKEN = 2**31 // 64


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Inside, launch() launches nothing: outputs have shapes and strides, no values.

    torch.compile asks for these with tensors that have no memory.
    """
    _thread.shapes_only = True
    try:
        yield
    finally:
        _thread.shapes_only = False


def launch(kernel, grid: tuple[int, ...], *arguments, **options) -> None:
    """Launch ``kernel`` on the device of its first argument."""
    if getattr(_thread, "shapes_only", False):
        return
    # kernels are launched on the current device, whatever device the tensors are on
    with torch.cuda.device_of(arguments[0]):
        kernel[grid](*arguments, **options)


def strides(tensors: Iterable[Tensor]) -> list[int]:
    """Of batch, length and head of each (B, N, H, D) tensor."""
    return [stride for x in tensors for stride in x.stride()[:3]]


def with_contiguous_rows(x: Tensor) -> Tensor:
    """x, copied only if its last dimension is not contiguous."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def with_near_tokens(x: Tensor) -> Tensor:
    """x with contiguous rows, copied if its tokens are farther than FARTHEST_TOKEN."""
    x = with_contiguous_rows(x)
    return x if x.stride(1) <= FARTHEST_TOKEN else x.contiguous()


def writable_rows(state: Tensor) -> Tensor:
    """state as a kernel can write it: with_contiguous_rows.

    Raises:
        ValueError: rows of the batch share memory, which each would write.
    """
    sizes_and_strides = zip(state.shape, state.stride(), strict=True)
    if any(size > 1 and stride == 0 for size, stride in sizes_and_strides):
        raise ValueError(
            f"initial_state has an expanded tensor, strides {state.stride()}, and a "
            "call with one token writes into it; allowed: memory for each row"
        )
    return with_contiguous_rows(state)


def write_back(rows: Tensor, state: Tensor) -> None:
    """Put what was written into ``writable_rows(state)`` into the state."""
    if rows is not state:
        state.copy_(rows)
    else:
        # a backward pass that still needs the old values must raise
        torch.autograd.graph.increment_version(state)


def empty_with_rows_like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Room for a result in the layout of x, its last dimension contiguous.

    dtype: None for that of x.
    """
    room = torch.empty_like(x, dtype=dtype)
    if room.stride(-1) == 1:
        return room
    # x overlaps itself
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def empty_rows(like: Tensor, length: int, width: int, dtype: torch.dtype) -> Tensor:
    """(B, length, H, width), in fairseq's T x B x C order where ``like`` has
    it and the tokens are near enough."""
    batch, _, heads, _ = like.shape
    options = {"dtype": dtype, "device": like.device}
    near = batch * heads * width <= FARTHEST_TOKEN
    if near and like.stride(0) < like.stride(1):
        return torch.empty((length, batch, heads, width), **options).transpose(0, 1)
    return torch.empty((batch, length, heads, width), **options)
