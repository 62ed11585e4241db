"""Peak memory of a call: what torch's allocator hands out on top of what is held.

On both devices this counts the bytes of tensors, exactly and repeatably. The resident
set of the process, the alternative on a CPU, also counts what the C library keeps for
reuse and misses what it reuses, which drowns small inputs; the tests compare the two
where tensors are large.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import torch
from torch.autograd.profiler import profile

# the profiler otherwise writes two lines to stderr for each measurement
os.environ.setdefault("KINETO_LOG_LEVEL", "9")

METHODS = {
    "cpu": "largest sum of the allocations and releases that torch's CPU allocator "
    "reports to torch's profiler during the call (inputs excluded)",
    "cuda": "torch.cuda.max_memory_allocated during the call, less "
    "torch.cuda.memory_allocated before it (inputs excluded)",
}


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """The most bytes that a call holds at one time beyond those held before.

    On a GPU the call is made twice, and the second one counts.
    """
    if device.type == "cuda":
        # compiles kernels, and makes torch's workspaces, which stay
        call()
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(profile_memory=True) as profiler:
        call()
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((e.nbytes() for e in events), initial=0))


def available_bytes() -> float:
    """What can still be allocated; infinite where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return math.inf
    sizes = dict(line.split(":") for line in lines)
    return int(sizes["MemAvailable"].split()[0]) * 1024


def is_out_of_memory(error: Exception) -> bool:
    """Whether torch could not allocate, on either device."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def why_not_measured(error: Exception) -> str:
    """What a row says of a case that failed: its kind, and two lines of its message."""
    kind = "out of memory" if is_out_of_memory(error) else type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{kind}: {' '.join(lines[:2])[:240] or 'no message'}"


def first_line(error: Exception) -> str:
    """Of its message, which may be empty."""
    return (str(error).strip() or "no message").splitlines()[0]
