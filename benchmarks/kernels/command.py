"""Time and memory of the ops beside their peers, over the length.

    python -m benchmarks kernels --device cuda

The number of tokens is the same at every length. Each contestant is checked against
float64 before it is timed (``accuracy``), caches are cold (``cold_cache``), and on a
GPU each call is timed as Python launches it and as a CUDA graph. What cannot run is a
row with its reason. Those whose first call compiles or tunes for long come last, one
after the other, each with an equal part of the time that is left; the JSON is written
anew after each group, each of these, and when the run is interrupted.
"""

from __future__ import annotations

import os
import time

import torch

from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.ops import FEATURE_MAPS

from ..harness import cold_cache, command_line, environment, results
from ..harness.cases import Deadline, add_time_limit
from ..harness.memory import METHODS
from ..harness.phases import GRAPH, LAUNCHED
from ..harness.roofline import copy_bandwidth
from . import accuracy, contestants
from .contestants import Case, Setup
from .kernel_measurement import Rules, measure

NAME = "kernels"
LENGTHS = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]
# what differs between a GPU and a CPU
DEFAULTS = {
    "cuda": {"tokens": 65536, "dtype": "bfloat16", "quadratic_limit_gib": 4.0},
    "cpu": {"tokens": 16384, "dtype": "float32", "quadratic_limit_gib": 0.5},
}


def parse(arguments: list[str] | None, name: str = NAME):
    """The command line of ``name``; options that depend on others are filled in."""
    parser = command_line.benchmark_parser(name, __doc__.splitlines()[0])
    parser.set_defaults(quadratic_limit_gib=None)
    add = parser.add_argument
    add("--groups", nargs="+", choices=contestants.NAMES, default=contestants.NAMES)
    add("--lengths", type=positive_integer, nargs="+", help="n, up to --tokens")
    add(
        "--compiled-lengths",
        type=positive_integer,
        nargs="*",
        default=[512, 8192],
        help="lengths for contestants in torch.compile, which take long to compile; "
        "none leaves these out",
    )
    add(
        "--quick",
        action="store_true",
        help="without those whose first call compiles or tunes for long",
    )
    add("--check-length", type=positive_integer, default=512, help="see accuracy")
    add("--tokens", type=positive_integer, help="B n (65,536 on a GPU)")
    add("--heads", type=positive_integer, default=8, help="H")
    add("--width", type=positive_integer, default=64, help="D, of a head")
    add("--block-size", type=positive_integer, default=64, help="w")
    add(
        "--feature-map",
        choices=sorted(FEATURE_MAPS),
        default="identity",
        help="phi of linear attention alone",
    )
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="of inputs")
    add_time_limit(parser, 3600)
    options = parser.parse_args(arguments)
    for option, value in DEFAULTS[options.device.type].items():
        if getattr(options, option) is None:
            setattr(options, option, value)
    if options.lengths is None:
        options.lengths = [n for n in LENGTHS if n <= options.tokens]
    for length in options.lengths:
        if options.tokens % length:
            parser.error(
                f"--lengths {length}; allowed: divisors of --tokens {options.tokens}"
            )
    if options.check_length % options.block_size:
        parser.error(
            f"--check-length {options.check_length}; allowed: multiples of "
            f"--block-size {options.block_size}"
        )
    return options


def setup_of(options) -> Setup:
    return Setup(
        options.tokens,
        options.heads,
        options.width,
        options.block_size,
        options.feature_map,
        options.device,
        getattr(torch, options.dtype),
    )


def groups_of(options) -> list[contestants.Group]:
    """The groups that are asked for."""
    cases = [Case(options.tokens // n, n) for n in options.lengths]
    check = accuracy.check_case(options.tokens, options.check_length, options.device)
    groups = contestants.all_groups(setup_of(options), cases, check)
    return [group for group in groups if group.name in options.groups]


def run(options, deadline: Deadline, record: results.Record) -> None:
    """Measure; the record grows by each group."""
    setup = setup_of(options)
    rules = Rules(
        command_line.repeats(options),
        options.clock,
        options.compiled_lengths,
        options.quadratic_limit_gib,
        deadline,
    )
    turns = turns_of(groups_of(options))
    if options.quick:
        turns = [turn for turn in turns if not turn[-1]]
    for i, (group, entered, alone) in enumerate(turns):
        # of those alone, none takes the time of the ones after it
        part = deadline.part_of(len(turns) - i) if alone else deadline
        begin, rows = time.monotonic(), []
        try:
            for row in measure(group, entered, setup, rules._replace(deadline=part)):
                rows.append(row)
        finally:  # an interrupt too
            record.add(rows)
        if setup.device.type == "cuda":
            torch.cuda.empty_cache()
        who = entered[0].name if alone else "eager and ours"
        names = ", ".join(filter(None, (group.name, group.variant, who)))
        print(f"{NAME}: {names}: {time.monotonic() - begin:.0f} s", flush=True)


def turns_of(groups: list[contestants.Group]) -> list[tuple]:
    """Groups, who of each measure together, and whether these are one, alone."""
    together, alone = [], []
    for group in groups:
        quick = [each for each in group.contestants if not each.slow_start]
        if quick:
            together.append((group, quick, False))
        alone += [(group, [c], True) for c in group.contestants if c.slow_start]
    return together + alone


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = parse(arguments)
    deadline = Deadline(options.time_limit)
    command_line.prepare(options)
    device = options.device
    described = environment.peers()
    on_gpu = device.type == "cuda"
    if not on_gpu:
        # others at work on a CPU spoil every time
        described["load_average"] = os.getloadavg()[0]
    settings = {
        "tokens": options.tokens,
        "heads": options.heads,
        "head_width": options.width,
        "block_size": options.block_size,
        "feature_map": options.feature_map,
        "dtype": options.dtype,
        "timings": [LAUNCHED, GRAPH] if on_gpu else [LAUNCHED],
        "check_length": options.check_length,
        "wrong_above": f"{accuracy.FACTOR:g} times the error of plain torch",
        "flushed_bytes": cold_cache.buffer_bytes(device),
        "copy_bandwidth": copy_bandwidth(device),
        "memory_method": METHODS[device.type],
    }
    record = command_line.record(NAME, options, arguments, settings, **described)
    run(options, deadline, record)
    record.finish()
