"""Time, peak memory, errors and the machine: how everything here is measured."""

from __future__ import annotations

import gc
import importlib.metadata
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.profiler import profile

import fairseq_transnormer

# the profiler otherwise writes two lines to stderr for each measurement
os.environ.setdefault("KINETO_LOG_LEVEL", "9")

Call = Callable[[], object]
# "process": what this process computed, whatever else the machine does meanwhile
CLOCKS = {"wall": time.perf_counter, "process": time.process_time}
# without autograd, and as in training; with Python's launches, and without
FORWARD, TRAINING = "forward", "forward and backward"
LAUNCHED, GRAPH = "launched", "CUDA graph"
GIB = 2**30
# larger than a CPU's caches
FLUSHED_BYTES = 2**26
COPIED_BYTES = {"cuda": 2**30, "cpu": 2**28}
PACKAGES = ("triton", "fla-core", "liger-kernel", "lightning_attn", "transformers")


def time_in_turns(
    calls: Mapping[str, Call], options, cold: bool = False, counted: bool = False
) -> dict[str, list[float]]:
    """Seconds of each call's samples.

    On a CPU the calls take turns, so that whatever else the machine does hits all of
    them alike. On a GPU ``triton.testing.do_bench`` times one after the other, with
    empty caches.

    Args:
        calls: name -> call, warmed up.
        options: device, clock, seconds, least_repeats, most_repeats.
        cold: whether a CPU's caches are emptied before each call, too.
        counted: on a GPU take turns, too: there is room for ``most_repeats`` calls.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    on_gpu = options.device.type == "cuda"
    if on_gpu and not counted:
        return {name: _on_a_gpu(call, options) for name, call in calls.items()}
    clock = CLOCKS[options.clock]
    buffer = torch.empty(FLUSHED_BYTES if cold else 0, dtype=torch.uint8)
    while waiting := [n for n in calls if _wants_more(samples[n], options)]:
        for name in waiting:
            buffer.zero_()
            begin = clock()
            calls[name]()
            if on_gpu:
                torch.cuda.synchronize(options.device)
            samples[name].append(clock() - begin)
    return samples


def _wants_more(samples: list[float], options) -> bool:
    if len(samples) < options.least_repeats:
        return True
    return len(samples) < options.most_repeats and sum(samples) < options.seconds


def _on_a_gpu(call: Call, options) -> list[float]:
    from triton.testing import do_bench

    torch.cuda.synchronize(options.device)
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize(options.device)
    # do_bench makes as many calls as it expects to fit
    least = 1.2 * options.least_repeats * (time.perf_counter() - begin)
    milliseconds = 1e3 * max(1e-3, options.seconds, least)
    warmup = min(25.0, milliseconds / 4)
    samples = do_bench(call, warmup=warmup, rep=milliseconds, return_mode="all")
    return [each / 1e3 for each in samples]


def captured(make_call: Callable[[], Call]) -> Call:
    """Replays what a call launches; its inputs keep their addresses.

    ``triton.testing.do_bench_cudagraph`` leaves the L2 cache warm, and captures a
    backward pass on another stream than that of its forward pass.

    Args:
        make_call: returns the call. It runs on the stream that captures, since autograd
            runs a backward pass on the stream of its forward pass.

    Raises:
        RuntimeError: the call waits for the device, or does what a graph cannot hold.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call = make_call()
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        outputs = call()
    return partial(_replay, graph, outputs)


def _replay(graph, outputs: object) -> None:
    """``outputs`` are held, so that their memory stays theirs."""
    graph.replay()


def release_graphs() -> None:
    """Give the memory of graphs back that nobody refers to any more."""
    gc.collect()
    torch.cuda.empty_cache()


def measure(rows: Mapping[str, dict], calls: Mapping[str, Call], options, cold=False):
    """Write ``peak_bytes`` and ``seconds``, or ``skipped``, into the rows of the calls.

    A call that runs out of memory costs the others nothing; other errors end the run.
    """
    fitting, on_gpu = {}, options.device.type == "cuda"
    for name, call in calls.items():
        try:
            # this also warms the call up
            rows[name]["peak_bytes"] = peak_bytes(call, options.device)
            if on_gpu:
                rows[name]["seconds"] = _on_a_gpu(call, options)
            else:
                fitting[name] = call
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            rows[name]["skipped"] = why_not_measured(error)
            if on_gpu:
                release_graphs()
    for name, seconds in time_in_turns(fitting, options, cold).items():
        rows[name]["seconds"] = seconds


def peak_bytes(call: Call, device: torch.device) -> int:
    """The most bytes that a call's tensors hold at one time beyond those held before.

    On both devices what torch's allocator hands out, exactly and repeatably.
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


def nbytes(tensors: Sequence[Tensor]) -> int:
    """Of all of them."""
    return sum(x.numel() * x.element_size() for x in tensors)


def available_bytes() -> float:
    """What can still be allocated on the host; infinite where it does not say."""
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
    """The kind of an error, and two lines of its message."""
    kind = "out of memory" if is_out_of_memory(error) else type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{kind}: {' '.join(lines[:2])[:240] or 'no message'}"


def copy_bandwidth(device: torch.device, clock: str = "wall") -> float:
    """Bytes a second, read and written, of copying a large buffer: the median copy."""
    source = torch.ones(COPIED_BYTES[device.type], dtype=torch.uint8, device=device)
    target, samples = torch.empty_like(source), []
    for _ in range(22):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begin = CLOCKS[clock]()
        target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        samples.append(CLOCKS[clock]() - begin)
    return 2 * source.nbytes / statistics.median(samples[2:])


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """|x - y| / |y| in the Euclidean norm; infinite where the shapes differ."""
    if actual.shape != expected.shape:
        return math.inf
    expected = expected.double()
    norm = expected.norm().item()
    distance = (actual.double() - expected).norm().item()
    return distance / norm if norm > 0 else distance


def quadratic_skip(size: float, options, what: str = "length x length matrix"):
    """Why a case with a tensor of this many bytes is left out, or None."""
    if size <= options.quadratic_limit_gib * GIB:
        return None
    return (
        f"its {what} takes {size / GIB:.3g} GiB, above --quadratic-limit-gib "
        f"{options.quadratic_limit_gib:g}"
    )


class Limits:
    """What still fits: --time-limit, and --call-limit where there is one.

    The time of a call is predicted from the last shorter case of the same key.
    """

    def __init__(self, options):
        self.end = time.monotonic() + options.time_limit
        self._seconds = options.time_limit
        self._call_limit = getattr(options, "call_limit", math.inf)
        self._last: dict[object, tuple[float, float]] = {}

    def part_of(self, count: int) -> float:
        """The end of an equal part of what is left, for one of ``count``."""
        now = time.monotonic()
        return now + max(0.0, self.end - now) / count

    def over(self, end: float | None = None) -> str | None:
        """Why no further case is begun, or None."""
        if time.monotonic() <= (self.end if end is None else end):
            return None
        return f"--time-limit {self._seconds:g} was over"

    def skip(self, key: object, size: float, growth: float) -> str | None:
        """Why a case is left out; its time grows like size^growth at most."""
        last, seconds = self._last.get(key, (size, 0.0))
        expected = seconds * (size / last) ** growth
        if expected <= self._call_limit:
            return self.over()
        return f"a call would take {expected:.2g} s, above {self._call_limit:g}"

    def note(self, key: object, size: float, row: Mapping) -> None:
        """Remember the time of a measured row."""
        if "seconds" in row:
            self._last[key] = size, min(row["seconds"])


def describe(device: torch.device) -> dict[str, object]:
    """Device, threads and versions, ready for JSON."""
    on_gpu = device.type == "cuda"
    described = {
        "device": torch.cuda.get_device_name(device) if on_gpu else cpu_name(),
        "cpu": cpu_name(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fairseq_transnormer": fairseq_transnormer.__version__,
    }
    if on_gpu:
        described["cuda"] = torch.version.cuda
        described["capability"] = list(torch.cuda.get_device_capability(device))
    else:
        # others at work on a CPU spoil every time
        described["load_average"] = os.getloadavg()[0]
    for name in PACKAGES:
        if is_installed(name):
            described[name] = importlib.metadata.version(name)
    return described


def is_installed(distribution: str) -> bool:
    """Whether a package is there."""
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def cpu_name() -> str:
    """The model of the CPU."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
