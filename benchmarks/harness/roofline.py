"""How fast memory is, and the least that an op must move through it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

from .timing import seconds_of

BUFFER_BYTES = {"cuda": 2**30, "cpu": 2**28}
COPIES = 20


def copy_bandwidth(device: torch.device, clock: str = "wall") -> dict[str, object]:
    """Bytes a second, read and written, of copying a buffer: the median copy."""
    size = BUFFER_BYTES[device.type]
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    samples = [
        seconds_of(lambda: target.copy_(source), device, clock)
        for _ in range(COPIES + 2)
    ]
    return {
        "bytes_per_second": 2 * size / statistics.median(samples[2:]),
        "buffer_bytes": size,
        "copies": COPIES,
    }


def least_bytes(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[str, int]:
    """Each tensor once.

    forward: inputs read, outputs written. backward: inputs and gradients of the
    outputs read, gradients of the inputs written.
    """
    read, written = size(inputs), size(outputs)
    gradients = size([x for x in inputs if x.requires_grad])
    return {"forward": read + written, "backward": read + written + gradients}


def size(tensors: Sequence[Tensor]) -> int:
    """Bytes of the tensors."""
    return sum(x.numel() * x.element_size() for x in tensors)
