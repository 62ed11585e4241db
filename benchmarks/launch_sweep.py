"""Which form, segment and stages of causal linear attention are fastest on this GPU.

    python -m benchmarks launch_sweep --device cuda --write

Every form, segment length and number of stages is timed as a CUDA graph, forward and
backward, over numbers of sequences (B * H) and lengths; it takes minutes, most of them
to compile. From the times follows the rule by which a call takes a form, and the stages
of each kernel: those whose times are nearest to the best of each size. --write puts
them into ops/linear_attention/launch_table.py, where they are read.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from math import exp, inf, log
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor

from fairseq_transnormer.ops.backend import multiprocessors

from . import measure
from .measure import Limits
from .options import DTYPES, Options, Rows, benchmark, option, two_numbers
from .providers import normal
from .registry import linear

DIRECTIONS = ("forward", "backward")
ONE_SEGMENT = "one segment"
SEQUENCES = (8, 32, 64, 128, 256, 512, 1024)
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
# B * H * N, where memory and time end, and where nothing but launches is measured
FEWEST, MOST = 2**14, 2**19
SEGMENTS = (256, 512, 1024, 2048, 4096)
KERNELS = [f"segments {direction}" for direction in DIRECTIONS]
STAGES = (2, 3, 4)
# what a rule is chosen from
GRID = {
    "one_segment": (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0),
    "enough": (0.25, 0.5, 1.0, 1.75, 2.0, 3.0, 4.0),
    "smallest_segment": (256, 512, 1024),
    "balance": (32, 64, 128, 512),
}
# relative error from torch's result: wrong above
WRONG = 0.03


class Launch(NamedTuple):
    """A way to launch: form or tokens of a segment, and stages."""

    form: str | int
    stages: int


class Size(NamedTuple):
    """B * H and N."""

    sequences: int
    length: int


def sizes() -> list[Size]:
    """Every pair that is neither nothing nor too much, the middle first: the time limit
    may cut the others off."""
    pairs = (Size(*pair) for pair in itertools.product(SEQUENCES, LENGTHS))
    fitting = [x for x in pairs if FEWEST <= x.sequences * x.length <= MOST]
    return sorted(fitting, key=lambda x: abs(x.sequences * x.length - 2**18))


def launches(size: Size) -> list[Launch]:
    """All ways to launch a size."""
    forms: list[str | int] = [ONE_SEGMENT]
    forms += [segment for segment in SEGMENTS if segment < size.length]
    return [Launch(*pair) for pair in itertools.product(forms, STAGES)]


@contextmanager
def launched_as(launch: Launch) -> Iterator[None]:
    """Inside, causal linear attention is launched like this, whatever its size."""
    from fairseq_transnormer.ops.linear_attention import launch_table

    forced = {"one_segment": 0}
    if launch.form != ONE_SEGMENT:
        forced = {"one_segment": inf, "enough": 0, "balance": 0}
        forced["smallest_segment"] = launch.form
    table_entry = launch_table.table_entry

    def entry(*arguments, **keywords):
        return table_entry(*arguments, **keywords) | {"num_stages": launch.stages}

    with (
        mock.patch.object(launch_table, "RULE", launch_table.Rule(**forced)),
        mock.patch.object(launch_table, "table_entry", entry),
    ):
        yield


class Calls:
    """The two directions of one size, on the same inputs.

    Heads are 8 where the sequences can be divided so, as in the paper's models.
    """

    def __init__(self, size: Size, width: int, device: torch.device, dtype):
        heads = min(8, size.sequences)
        shape = (size.sequences // heads, size.length, heads, width)
        self.inputs = [normal(shape, device, dtype).requires_grad_() for _ in range(3)]
        self.grad = normal(shape, device, dtype)

    def run(self, direction: str, backend: str = "triton"):
        """A call without arguments that gives a tuple of results."""
        attend = linear(causal=True, backend=backend)
        if direction == "forward":

            def forward() -> tuple[Tensor, ...]:
                with torch.no_grad():
                    return (attend(*self.inputs),)

            return forward
        output = attend(*self.inputs)
        grad = self.grad.to(output.dtype)
        return lambda: torch.autograd.grad(output, self.inputs, grad, retain_graph=True)


def rows_of(size: Size, options, limits: Limits) -> Rows:
    """A row for each direction and launch: seconds, or why there are none."""
    calls = Calls(size, options.width, options.device, options.torch_dtype)
    expected = {direction: calls.run(direction, "torch")() for direction in DIRECTIONS}
    # before any capture: what a first backward pass sets up breaks one
    with launched_as(launches(size)[0]), suppress(Exception):
        calls.run("backward")()
    rows = []
    for direction, launch in itertools.product(DIRECTIONS, launches(size)):
        row = {**size._asdict(), "direction": direction, **launch._asdict()}
        rows.append(row)
        if reason := limits.over():
            row["skipped"] = reason
            continue
        try:
            make_call = partial(calls.run, direction)
            with launched_as(launch):
                pairs = zip(make_call()(), expected[direction], strict=True)
                row["error"] = max(itertools.starmap(measure.relative_error, pairs))
                if row["error"] > WRONG:
                    row["skipped"] = "its results are wrong"
                else:
                    row["seconds"] = _seconds(make_call, options)
        except Exception as error:  # whatever does not compile is the answer
            row["skipped"] = measure.why_not_measured(error)
    return rows


def _seconds(make_call: Callable[[], Callable], options) -> list[float]:
    """Samples of a call, on a GPU as a CUDA graph, whose memory is free afterwards."""
    on_gpu = options.device.type == "cuda"
    call = measure.captured(make_call) if on_gpu else make_call()
    try:
        return measure.time_in_turns({"": call}, options)[""]
    finally:
        del call
        if on_gpu:
            measure.release_graphs()


def chosen_rule(
    rows: Sequence[dict], processors: int, width: int
) -> tuple[dict[str, float], dict[str, int], float]:
    """What follows from the times.

    Args:
        rows: of ``rows_of``.
        processors: multiprocessors of the GPU.
        width: of the heads that were measured.

    Returns:
        Fields of ``launch_table.Rule``; kernel (of KERNELS) to stages; the
        geometric mean of the times that these take, over the best of each size.

    Raises:
        ValueError: a direction was not measured at all.
    """
    times: dict[tuple, dict[Launch, float]] = {}
    for row in rows:
        if "seconds" in row:
            place = Size(row["sequences"], row["length"]), row["direction"]
            launch = Launch(row["form"], row["stages"])
            times.setdefault(place, {})[launch] = statistics.median(row["seconds"])
    measured = {direction for _, direction in times}
    if measured != set(DIRECTIONS):
        raise ValueError(f"both directions must be measured, got {sorted(measured)}")
    best = {place: min(found.values()) for place, found in times.items()}

    def lost(forms: list[str | int], stages: dict[str, int]) -> float:
        parts = []
        for form, (place, found) in zip(forms, times.items(), strict=True):
            launch = Launch(form, stages[f"segments {place[1]}"])
            # what could not be measured there is as bad as the worst
            seconds = found.get(launch, max(found.values()))
            parts.append(log(seconds / best[place]))
        return sum(parts) / len(parts)

    rules = [
        dict(zip(GRID, values, strict=True))
        for values in itertools.product(*GRID.values())
    ]
    forms = [
        [form_of(rule, *place, processors, width) for place in times] for rule in rules
    ]
    stages = dict.fromkeys(KERNELS, 3)
    chosen = 0
    # the two choices hardly depend on each other: in turns
    for _ in range(2):
        chosen = min(range(len(rules)), key=lambda i: lost(forms[i], stages))
        for kernel in KERNELS:
            stages[kernel] = min(
                STAGES,
                key=lambda n, kernel=kernel: lost(forms[chosen], stages | {kernel: n}),
            )
    return rules[chosen], stages, exp(lost(forms[chosen], stages))


def form_of(
    rule: dict[str, float], size: Size, direction: str, processors: int, width: int
) -> str | int:
    """The form or segment that ``launch_table.causal_plan`` takes by a rule."""
    from fairseq_transnormer.ops.linear_attention import launch_table

    # one head for all: the plan asks for their product
    query = torch.empty(1).expand(size.sequences, size.length, 1, width)
    with (
        mock.patch.object(launch_table, "RULE", launch_table.Rule(**rule)),
        mock.patch.object(launch_table, "multiprocessors", lambda device: processors),
    ):
        plan = launch_table.causal_plan(direction, query, query)
    return plan.segment if plan.several else ONE_SEGMENT


def write_table(path: Path, rule: dict[str, float], stages: dict[str, int]) -> None:
    """Put a rule's numbers, and stages, where the launches read them.

    Raises:
        ValueError: the file does not have one of them.
    """
    text = path.read_text(encoding="utf-8")
    lines = [(rf"    {name}: \w+ = ", value, "") for name, value in rule.items()]
    lines += [(rf'    "{kernel}": ', count, ",") for kernel, count in stages.items()]
    for begin, value, end in lines:
        text, found = re.subn(
            rf"^({begin}).*{end}$", rf"\g<1>{value}{end}", text, flags=re.MULTILINE
        )
        if found != 1:
            raise ValueError(f"{path} has {found} lines {begin!r}; needed: one")
    path.write_text(text, encoding="utf-8")


@dataclass
class LaunchSweep(Options):
    """On a GPU alone."""

    least_repeats: int = option(5, "samples of each case at least")
    seconds: float = option(0.01, "for the samples of a case beyond the least")
    time_limit: float = option(300.0, "seconds after which no case begins")
    dtype: str = option("bfloat16", "of inputs", choices=DTYPES)
    width: int = option(64, "of a head", choices=(32, 64, 128))
    write: bool = option(False, "put the rule in place")
    sizes: list[Size] = option(sizes(), "BHxN, sequences and length", type=two_numbers)

    def check(self) -> None:
        if self.device.type != "cuda":
            raise ValueError(f"--device must be cuda, got {self.device}")


@benchmark(LaunchSweep)
def launch_sweep(options: LaunchSweep, settings: dict) -> Iterator[Rows]:
    """The fastest form and stages of causal linear attention on a GPU."""
    from fairseq_transnormer.ops.linear_attention import launch_table as shipped

    limits, processors = Limits(options), multiprocessors(options.device)
    settings |= {"multiprocessors": processors, "rule": asdict(shipped.RULE)}
    rows: Rows = []
    for size in itertools.starmap(Size, options.sizes):
        rows += (found := rows_of(size, options, limits))
        yield found
    rule, stages, ratio = chosen_rule(rows, processors, options.width)
    for name, value in rule.items():
        print(f"{name}: {value} (shipped: {getattr(shipped.RULE, name)})")
    for kernel, count in stages.items():
        print(f"stages of {kernel}: {count}")
    print(f"{ratio:.3f} times the best of each size, in the geometric mean")
    if options.write:
        write_table(Path(shipped.__file__), rule, stages)
