"""Turns, repeats and quartiles, with a clock of our own."""

import time

import pytest
import torch

from benchmarks.harness import timing
from benchmarks.harness.timing import Repeats, interleave, seconds_of

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    """Calls take as many seconds as they return."""
    monkeypatch.setattr(timing, "seconds_of", lambda call, *_: call())


def contestant(name, seconds, order):
    def call():
        order.append(name)
        return seconds

    return call


def run(repeats, **seconds):
    order = []
    calls = {name: contestant(name, s, order) for name, s in seconds.items()}
    return interleave(calls, CPU, repeats), "".join(order)


def test_contestants_take_turns_and_slow_ones_sit_out(clock):
    samples, order = run(Repeats(2, 5, 2.0), a=1.5, b=0.5)
    # a has used up its 2 s after the least number of samples, b after four
    assert order == "ababbb"
    assert samples == {"a": [1.5, 1.5], "b": [0.5] * 4}


def test_quick_ones_stop_at_the_most(clock):
    samples, _ = run(Repeats(1, 5, 100.0), a=0.1)
    assert len(samples["a"]) == 5


def test_the_least_is_taken_without_time(clock):
    _, order = run(Repeats(3, 5, 0.0), a=1.0, b=2.0)
    assert order == "ababab"


def test_seconds_of_calls_once():
    order = []
    assert seconds_of(contestant("a", 0, order), CPU) >= 0
    assert order == ["a"]


def test_the_process_clock_does_not_count_waiting():
    wall, process = (
        seconds_of(lambda: time.sleep(0.2), CPU, name) for name in ("wall", "process")
    )
    assert process < 0.1 < wall
