"""Which form, segment and stages of causal linear attention are fastest on this GPU.

    python -m benchmarks launch_sweep --device cuda

prints what ops/linear_attention/launch_table.py should say.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from math import exp, inf, log
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor

from fairseq_transnormer.ops.backend import multiprocessors

from . import measure
from .measure import Limits
from .options import LaunchSweep, Rows
from .registry import linear, normal

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
    pairs = itertools.starmap(Size, itertools.product(SEQUENCES, LENGTHS))
    fitting = [x for x in pairs if FEWEST <= x.sequences * x.length <= MOST]
    return sorted(fitting, key=lambda x: abs(x.sequences * x.length - 2**18))


def launches(size: Size) -> list[Launch]:
    """All ways to launch a size."""
    forms = [ONE_SEGMENT, *(each for each in SEGMENTS if each < size.length)]
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


def calls_of(size: Size, options: LaunchSweep) -> Callable[[str, str], Callable]:
    """The two directions of one size on the same inputs, as (direction, backend) to a
    call that gives a tuple of results.

    Heads are 8 where the sequences can be divided so, as in the paper's models.
    """
    heads = min(8, size.sequences)
    shape = (size.sequences // heads, size.length, heads, options.width)
    draw = partial(normal, shape, options.device, options.torch_dtype)
    inputs, grad = [draw().requires_grad_() for _ in range(3)], draw()

    def make(direction: str, backend: str = "triton") -> Callable:
        attend = linear(causal=True, backend=backend)

        def forward() -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (attend(*inputs),)

        if direction == "forward":
            return forward
        output = attend(*inputs)
        grads = grad.to(output.dtype)
        return lambda: torch.autograd.grad(output, inputs, grads, retain_graph=True)

    return make


def rows_of(size: Size, options: LaunchSweep, limits: Limits) -> Rows:
    """A row for each direction and launch: seconds, or why there are none."""
    make, rows = calls_of(size, options), []
    expected = {direction: make(direction, "torch")() for direction in DIRECTIONS}
    # before any capture: what a first backward pass sets up breaks one
    with launched_as(launches(size)[0]), suppress(Exception):
        make("backward")()
    for direction, launch in itertools.product(DIRECTIONS, launches(size)):
        row = {**size._asdict(), "direction": direction, **launch._asdict()}
        rows.append(row)
        if reason := limits.over():
            row["skipped"] = reason
            continue
        make_call = partial(make, direction)
        with launched_as(launch):
            error = measure.attempt(_error, make_call, expected[direction])
            if isinstance(error, str):  # whatever does not compile is the answer
                row["skipped"] = error
                continue
            row["error"] = error
            if error > WRONG:
                row["skipped"] = "its results are wrong"
            elif options.on_gpu:
                measure.measure_graph(row, make_call, options)
            else:  # in Triton's interpreter
                measure.measure([(row, make_call())], options, memory=False)
    return rows


def _error(make_call: Callable, expected: Sequence[Tensor]) -> float:
    pairs = zip(make_call()(), expected, strict=True)
    return max(itertools.starmap(measure.relative_error, pairs))


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

    def lost(forms: list[str | int], stages: dict[str, int]) -> float:
        parts = []
        for form, (place, found) in zip(forms, times.items(), strict=True):
            launch = Launch(form, stages[f"segments {place[1]}"])
            # what could not be measured there is as bad as the worst
            seconds = found.get(launch, max(found.values()))
            parts.append(log(seconds / min(found.values())))
        return sum(parts) / len(parts)

    rules = [dict(zip(GRID, v, strict=True)) for v in itertools.product(*GRID.values())]
    forms = [
        [form_of(rule, *place, processors, width) for place in times] for rule in rules
    ]
    stages, chosen = dict.fromkeys(KERNELS, 3), 0
    # the two choices hardly depend on each other: in turns
    for _ in range(2):
        chosen = min(range(len(rules)), key=lambda i: lost(forms[i], stages))
        for kernel in KERNELS:
            kinds = [stages | {kernel: count} for count in STAGES]
            stages = min(kinds, key=partial(lost, forms[chosen]))
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


def launch_sweep(options: LaunchSweep, settings: dict) -> Iterator[Rows]:
    from fairseq_transnormer.ops.linear_attention.launch_table import RULE

    limits, processors = Limits(options), multiprocessors(torch.device(options.device))
    settings |= {"multiprocessors": processors, "rule": asdict(RULE)}
    rows: Rows = []
    for size in itertools.starmap(Size, options.sizes or sizes()):
        rows += (found := rows_of(size, options, limits))
        yield found
    rule, stages, ratio = chosen_rule(rows, processors, options.width)
    for name, value in rule.items():
        print(f"{name}: {value} (shipped: {getattr(RULE, name)})")
    for kernel, count in stages.items():
        print(f"stages of {kernel}: {count}")
    print(f"{ratio:.3f} times the best of each size, in the geometric mean")
