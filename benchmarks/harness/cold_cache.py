"""Calls whose inputs are not in the cache: a buffer is written before each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

# larger than the caches of today's GPUs; writing it takes longer than queueing a call
SMALLEST = {"cuda": 256 * 2**20, "cpu": 32 * 2**20}
L3 = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")


def buffer_bytes(device: torch.device) -> int:
    """Twice the last cache's size, or ``SMALLEST`` if that is more."""
    return max(2 * last_cache_bytes(device), SMALLEST[device.type])


def last_cache_bytes(device: torch.device) -> int:
    """Of the L2 of a GPU or the L3 of a CPU; 0 if the system does not say."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).L2_cache_size
    try:
        return int(L3.read_text().strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 0


def flusher(device: torch.device, *, wait: bool) -> Callable[[], None]:
    """Writes the buffer.

    wait: until it is written, so that the device is idle when the timed call comes;
        else the call is queued behind it.
    """
    buffer = torch.empty(buffer_bytes(device), dtype=torch.uint8, device=device)

    def flush() -> None:
        buffer.zero_()
        if wait and device.type == "cuda":
            torch.cuda.synchronize(device)

    return flush
