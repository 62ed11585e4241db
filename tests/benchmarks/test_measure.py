"""Turns, ratios, memory and limits, with clocks and allocations of our own."""

import sys
import time
import types
import weakref

import pytest
import torch

from benchmarks import measure
from benchmarks.measure import Limits, peak_bytes
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


def test_the_process_clock_does_not_count_waiting():
    process, wall = (
        time_in_turns({"": lambda: time.sleep(0.2)}, options(1, 1, clock=name))[""][0]
        for name in ("process", "wall")
    )
    assert process < 0.1 < wall


def test_a_gpu_is_timed_by_triton(monkeypatch):
    """One after the other, as long as the least samples take, in seconds."""
    now, asked = [0.0], []

    def do_bench(call, *, warmup, rep, return_mode):
        asked.append((warmup, rep, return_mode))
        return [3.0, 5.0]

    testing = types.ModuleType("triton.testing")
    testing.do_bench = do_bench
    monkeypatch.setitem(sys.modules, "triton.testing", testing)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    given = options(least=5, seconds=0.01)
    given.device = "cuda"
    quick, slow = (lambda: None), (lambda: now.__setitem__(0, now[0] + 0.5))
    samples = time_in_turns({"quick": quick, "slow": slow}, given)
    assert samples == dict.fromkeys(("quick", "slow"), [0.003, 0.005])
    # 10 ms; and five calls of half a second, with something to spare
    assert asked == [(2.5, 10.0, "all"), (25.0, pytest.approx(3000), "all")]


def test_growing_calls_are_counted_on_a_gpu(monkeypatch, clock):
    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    given = options(least=2, most=2)
    given.device = "cuda"
    samples = time_in_turns({"a": lambda: clock.append(1)}, given, counted=True)
    assert len(samples["a"]) == 2 and waits == [given.device] * 2


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


def test_what_the_first_call_on_a_gpu_makes_for_good_does_not_count(monkeypatch):
    """cuBLAS's workspace would be a figure of whoever is measured first."""
    held = {"now": 0, "most": 0}

    def call():
        held["now"] = 32
        held["most"] = max(held["most"], held["now"] + 5)

    stand_in = {
        "synchronize": lambda device: None,
        "reset_peak_memory_stats": lambda device: held.update(most=held["now"]),
        "memory_allocated": lambda device: held["now"],
        "max_memory_allocated": lambda device: held["most"],
    }
    for name, function in stand_in.items():
        monkeypatch.setattr(torch.cuda, name, function)
    assert [peak_bytes(call, torch.device("cuda")) for _ in range(2)] == [5, 5]


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


def test_a_captured_call_is_gone_before_the_next(monkeypatch):
    """Each graph holds the memory of all that it computes."""
    held = weakref.WeakSet()

    class Captured:
        def __init__(self, make_call):
            assert not held
            self.itself = self  # as what a failed capture leaves
            held.add(self)

    monkeypatch.setattr(measure, "captured", Captured)
    monkeypatch.setattr(measure, "_on_a_gpu", lambda call, given: [len(held)])
    for _ in range(2):
        row = measure.measure_graph({}, None, options(device="cuda"))
        assert row == {"seconds": [1]}
    assert not held


def test_limits_predict_the_next_call():
    limits = Limits(options(call_limit=3.0))
    assert limits.skip("a", 8, 2) is None
    limits.note("a", 8, {"seconds": [0.9, 0.7]})
    assert limits.skip("a", 16, 2) is None  # 2.8 s
    assert "3.2 s" in limits.skip("a", 17, 2)
    assert limits.skip("b", 99, 2) is None
    assert "--time-limit -1" in Limits(options(time_limit=-1)).over()


def test_bandwidth_is_that_of_the_median_copy(monkeypatch):
    monkeypatch.setitem(measure.COPIED_BYTES, "cpu", 1000)
    seconds = iter([x for s in [9, 9, *[0.5] * 11, *[2.0] * 9] for x in (0, s)])
    monkeypatch.setitem(measure.CLOCKS, "wall", lambda: next(seconds))
    assert measure.copy_bandwidth(options()) == 4000


def test_relative_error_by_hand():
    error = measure.relative_error(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 4.0]))
    assert error == pytest.approx(0.75)
    assert measure.relative_error(torch.zeros(2), torch.zeros(3)) == float("inf")
