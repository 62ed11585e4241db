"""Time, peak memory, errors and the machine: how everything here is measured."""

from __future__ import annotations

import gc
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.profiler import profile

import fairseq_transnormer
from fairseq_transnormer.data.fingerprints import installed_versions

from .options import Options, Rows

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


def measure(
    cases: Iterable[tuple[dict, Call | str]],
    options: Options,
    *,
    memory: bool = True,
    cold: bool = False,
    counted: bool = False,
) -> Rows:
    """The rows of the cases with ``peak_bytes`` and ``seconds``, or ``skipped``.

    On a CPU the calls take turns, so that whatever else the machine does hits all of
    them alike. On a GPU ``triton.testing.do_bench`` times one after the other, with
    empty caches. A call that fails costs the others nothing.

    Args:
        cases: a row each, and its call or why there is none.
        memory: whether memory is measured; a call is not warmed up otherwise.
        cold: whether a CPU's caches are emptied before each call, too.
        counted: on a GPU take turns, too: there is room for ``most_repeats`` calls.
    """
    rows, waiting = [], []
    for row, call in cases:
        rows.append(row)
        if isinstance(call, str):
            row["skipped"] = call
            continue
        try:
            if memory:
                row["peak_bytes"] = peak_bytes(call, options.device)
            if options.on_gpu and not counted:
                row["seconds"] = _on_a_gpu(call, options)
            else:
                waiting.append((row, call))
        except Exception as error:  # whatever a peer raises is the answer
            row["skipped"] = why_not_measured(error)
            if options.on_gpu:
                release_graphs()
    _in_turns(waiting, options, cold)
    return rows


def _in_turns(cases: list[tuple[dict, Call]], options: Options, cold: bool) -> None:
    clock = CLOCKS[options.clock]
    buffer = torch.empty(FLUSHED_BYTES if cold else 0, dtype=torch.uint8)
    for row, _ in cases:
        row["seconds"] = []
    while cases := [case for case in cases if _wants_more(case[0]["seconds"], options)]:
        for row, call in cases:
            buffer.zero_()
            begin = clock()
            call()
            if options.on_gpu:
                torch.cuda.synchronize(options.device)
            row["seconds"].append(clock() - begin)


def _wants_more(samples: list[float], options: Options) -> bool:
    if len(samples) < options.least_repeats:
        return True
    return len(samples) < options.most_repeats and sum(samples) < options.seconds


def _on_a_gpu(call: Call, options: Options) -> list[float]:
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


def measure_graph(row: dict, make_call: Callable[[], Call], options: Options) -> dict:
    """A row with the samples of a call as a CUDA graph, whose memory is free after."""
    case = row, attempt(captured, make_call)
    measure([case], options, memory=False)
    del case
    release_graphs()
    return row


def release_graphs() -> None:
    """Give the memory of graphs back that nobody refers to any more."""
    gc.collect()
    torch.cuda.empty_cache()


def attempt(make: Callable, *arguments) -> Any:
    """What it makes, or why it cannot."""
    try:
        return make(*arguments)
    except Exception as error:
        return why_not_measured(error)


def why_not_measured(error: Exception) -> str:
    """The kind of an error, and two lines of its message."""
    is_memory = isinstance(error, torch.OutOfMemoryError)
    is_memory |= "DefaultCPUAllocator" in str(error)
    kind = "out of memory" if is_memory else type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{kind}: {' '.join(lines[:2])[:240] or 'no message'}"


def peak_bytes(call: Call, device: torch.device | str) -> int:
    """The most bytes that a call's tensors hold at one time beyond those held before.

    On both devices what torch's allocator hands out, exactly and repeatably.
    """
    if torch.device(device).type == "cuda":
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
    return sum(x.nbytes for x in tensors)


def copy_bandwidth(options: Options) -> float:
    """Bytes a second, read and written, of copying a large buffer: the median copy."""
    size = COPIED_BYTES["cuda" if options.on_gpu else "cpu"]
    source = torch.ones(size, dtype=torch.uint8, device=options.device)
    copy = partial(torch.empty_like(source).copy_, source)
    repeats = replace(options, least_repeats=22, seconds=0.0)
    (row,) = measure([({}, copy)], repeats, memory=False, counted=True)
    return 2 * source.nbytes / statistics.median(row["seconds"][2:])


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """|x - y| / |y| in the Euclidean norm; infinite where the shapes differ."""
    if actual.shape != expected.shape:
        return math.inf
    expected = expected.double()
    norm = expected.norm().item()
    distance = (actual.double() - expected).norm().item()
    return distance / norm if norm > 0 else distance


def quadratic_skip(
    size: float, options: Options, what: str = "length x length matrix"
) -> str | None:
    """Why a case with a tensor of this many bytes is left out."""
    if size <= options.quadratic_limit_gib * GIB:
        return None
    return (
        f"its {what} takes {size / GIB:.3g} GiB, above --quadratic-limit-gib "
        f"{options.quadratic_limit_gib:g}"
    )


def memory_skip(needed: float, options: Options) -> str | None:
    """Why a case that needs so many bytes is left out on a CPU, whose memory cannot be
    used up safely."""
    free = math.inf if options.on_gpu else available_bytes()
    if needed <= free:
        return None
    return f"out of memory: it takes {needed / GIB:.3g} GiB of {free / GIB:.3g}"


def available_bytes() -> int:
    """What can still be allocated on the host."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    sizes = dict(line.split(":") for line in lines)
    return int(sizes["MemAvailable"].split()[0]) * 1024


class Limits:
    """What still fits: --time-limit, and --call-limit where there is one.

    The time of a call is predicted from the last shorter case of the same key.
    """

    def __init__(self, options: Options):
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

    def note(self, key: object, size: float, row: dict) -> None:
        """Remember the time of a measured row."""
        if row.get("seconds"):
            self._last[key] = size, min(row["seconds"])


def describe(device: torch.device | str) -> dict[str, object]:
    """Device, threads and versions, ready for JSON."""
    on_gpu = torch.device(device).type == "cuda"
    described = {
        "device": torch.cuda.get_device_name(device) if on_gpu else cpu_name(),
        "cpu": cpu_name(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "fairseq_transnormer": fairseq_transnormer.__version__,
    }
    if on_gpu:
        described["cuda"] = torch.version.cuda
        described["capability"] = list(torch.cuda.get_device_capability(device))
    else:
        # others at work on a CPU spoil every time
        described["load_average"] = os.getloadavg()[0]
    return described | installed_versions(PACKAGES)


def cpu_name() -> str:
    """The model of the CPU."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line for line in lines if line.startswith("model name")]
    return names[0].partition(": ")[2] if names else platform.machine()
