"""Turns, ratios, memory and limits, with clocks and allocations of our own."""

import pytest
import torch

from benchmarks import measure
from benchmarks.measure import peak_bytes
from benchmarks.options import AttentionOptions

CPU, MIB = torch.device("cpu"), 2**20


def options(least=2, most=5, seconds=2.0, **more):
    values = {"least_repeats": least, "most_repeats": most, "seconds": seconds}
    return AttentionOptions(**values, **more)


def time_in_turns(calls, given, **how):
    """Name -> samples."""
    cases = [({"name": name}, call) for name, call in calls.items()]
    rows = measure.measure(cases, given, memory=False, **how)
    return {row["name"]: row["seconds"] for row in rows}


@pytest.fixture
def clock(monkeypatch):
    """A clock that calls move on."""
    now = [0.0]
    monkeypatch.setitem(measure.CLOCKS, "wall", lambda: now[0])
    return now


def turns(clock, given, **seconds):
    order = []

    def call(name, duration):
        def move():
            order.append(name)
            clock[0] += duration

        return move

    calls = {name: call(name, duration) for name, duration in seconds.items()}
    return time_in_turns(calls, given), "".join(order)


def test_calls_take_turns_and_slow_ones_sit_out(clock):
    samples, order = turns(clock, options(), a=1.5, b=0.5)
    # a has used up its 2 s after the least number of samples, b after four
    assert order == "ababbb"
    assert samples == {"a": [1.5, 1.5], "b": [0.5] * 4}
    assert turns(clock, options(least=1, seconds=100.0), a=0.1)[1] == "aaaaa"
    assert turns(clock, options(least=3, seconds=0.0), a=1.0, b=2.0)[1] == "ababab"


def test_memory_is_what_lives_at_one_time():
    def call():
        first = torch.empty(3 * MIB, dtype=torch.uint8)
        second = torch.empty(2 * MIB, dtype=torch.uint8)
        del first, second
        return torch.empty(4 * MIB, dtype=torch.uint8)

    assert peak_bytes(call, CPU) == 5 * MIB
    held = torch.zeros(MIB)
    assert peak_bytes(lambda: held + 1, CPU) == pytest.approx(4 * MIB, abs=99)
    x = torch.ones(MIB, requires_grad=True)
    # exp(x), the gradient that goes in and the one that comes out, float32
    gradients = lambda: torch.autograd.grad(x.exp(), x, torch.ones(MIB))  # noqa: E731
    assert peak_bytes(gradients, CPU) == 3 * 4 * MIB


def test_a_call_that_fails_costs_the_others_nothing():
    def raising(error):
        def call():
            raise error

        return call

    errors = [
        torch.cuda.OutOfMemoryError("CUDA out of memory.\nmore lines"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        TypeError("no such\n\nargument\nmore"),
    ]
    cases = [({}, raising(error)) for error in errors]
    cases += [({}, lambda: torch.ones(9)), ({}, "not here")]
    *failed, good, absent = measure.measure(cases, options())
    assert good["peak_bytes"] == 36 and len(good["seconds"]) == 5
    assert absent == {"skipped": "not here"}
    assert [row["skipped"].partition(": ")[0] for row in failed] == [
        "out of memory", "out of memory", "TypeError",
    ]  # fmt: skip
    assert failed[2] == {"skipped": "TypeError: no such argument"}
