"""Times of several contestants, taken in turns in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch


class Repeats(NamedTuple):
    """How often to measure: up to ``most`` times while ``seconds`` last, but at least
    ``least`` times."""

    least: int
    most: int
    seconds: float

    def wants_more(self, samples: list[float]) -> bool:
        """Whether a contestant with these samples (in seconds) is measured again."""
        if len(samples) < self.least:
            return True
        return len(samples) < self.most and sum(samples) < self.seconds


# "process": what this process computed, whatever else the machine does meanwhile
CLOCKS = {"wall": time.perf_counter, "process": time.process_time}


def seconds_of(
    call: Callable[[], object], device: torch.device, clock: str = "wall"
) -> float:
    """Seconds that one call takes: CUDA events on a GPU, else one of ``CLOCKS``."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3
    begin = CLOCKS[clock]()
    call()
    return CLOCKS[clock]() - begin


def interleave(
    contestants: Mapping[str, Callable[[], object]],
    device: torch.device,
    repeats: Repeats,
    *,
    clock: str = "wall",
    before_each: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of each call of each contestant, which take turns.

    Whatever else the machine does then hits all of them alike. One that has used up its
    time sits out. ``before_each`` runs before each call and is not timed.
    """
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    while waiting := [n for n in contestants if repeats.wants_more(samples[n])]:
        for name in waiting:
            before_each()
            samples[name].append(seconds_of(contestants[name], device, clock))
    return samples
