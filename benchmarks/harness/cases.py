"""Measures calls in turns, within limits of time, and notes why one was left out."""

from __future__ import annotations

import copy
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping

from fairseq_transnormer.argument_types import positive_number

from . import command_line
from .memory import is_out_of_memory, peak_bytes, why_not_measured
from .timing import interleave


def measure(
    rows: Mapping[str, dict], calls: Mapping[str, Callable[[], object]], options
) -> None:
    """Write ``peak_bytes`` and ``seconds``, or ``skipped``, into the rows.

    Args:
        rows: name -> row.
        calls: name -> call, for those names that are to be measured.
        options: of ``command_line.benchmark_parser``.
    """
    fitting = {}
    for name, call in calls.items():
        try:
            # this also warms the call up
            rows[name]["peak_bytes"] = peak_bytes(call, options.device)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            rows[name]["skipped"] = why_not_measured(error)
        else:
            fitting[name] = call
    time_in_turns(rows, fitting, options)


def time_in_turns(
    rows: Mapping[str, dict], calls: Mapping[str, Callable[[], object]], options
) -> None:
    """Write ``seconds`` of all samples into the rows of the calls."""
    repeats = command_line.repeats(options)
    samples = interleave(calls, options.device, repeats, clock=options.clock)
    for name, seconds in samples.items():
        rows[name]["seconds"] = seconds


def add_time_limit(parser: ArgumentParser, seconds: float = 600) -> None:
    """The option of ``Deadline``."""
    parser.add_argument(
        "--time-limit",
        type=positive_number,
        default=seconds,
        help="seconds for the run; cases that it has not begun by then are left out",
    )


def add_limits(parser: ArgumentParser) -> None:
    """The options of ``Limits``."""
    add_time_limit(parser)
    parser.add_argument(
        "--call-limit",
        type=positive_number,
        default=3,
        help="skip a case of which one call is expected to take longer, in seconds",
    )


class Deadline:
    """When a run must end: --time-limit from now on."""

    def __init__(self, seconds: float):
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def part_of(self, count: int) -> Deadline:
        """An equal part of what is left, from now on, for one of ``count``."""
        part = copy.copy(self)
        now = time.monotonic()
        part._end = min(self._end, now + (self._end - now) / count)
        return part

    def over(self) -> str | None:
        """Why no further case is begun, if that is so."""
        if time.monotonic() <= self._end:
            return None
        return f"--time-limit {self._seconds:g} was over"


class Limits(Deadline):
    """What still fits: --time-limit and --call-limit.

    The time of a call is foretold from the last shorter case of the same key.
    """

    def __init__(self, options: Namespace):
        super().__init__(options.time_limit)
        self._call_limit = options.call_limit
        self._last: dict[object, tuple[int, float]] = {}

    def skip(self, key: object, size: int, growth: float) -> str | None:
        """Why a case is left out, if it is; its time grows like size^growth."""
        if key not in self._last:
            return self.over()
        last_size, seconds = self._last[key]
        expected = seconds * (size / last_size) ** growth
        if expected <= self._call_limit:
            return self.over()
        return (
            f"a call would take about {expected:.2g} s, after {seconds:.2g} s at "
            f"{last_size}, above --call-limit {self._call_limit:g}"
        )

    def note(self, key: object, size: int, row: Mapping[str, object]) -> None:
        """Remember the time of a measured row."""
        if "skipped" not in row:
            self._last[key] = size, min(row["seconds"])
