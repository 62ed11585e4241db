"""Turns, least bytes and memory, with clocks and allocations of our own."""

import subprocess
import sys
import time

import pytest
import torch

from benchmarks.harness import cold_cache, roofline, timing
from benchmarks.harness.memory import peak_bytes
from benchmarks.harness.phases import FORWARD, TRAINING
from benchmarks.harness.timing import Repeats, interleave, seconds_of
from benchmarks.kernels import contestants
from benchmarks.kernels.contestants import Case, Setup
from benchmarks.kernels.kernel_measurement import make_call
from tests.paths import ROOT

from .resident_peak import CLEAR

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


SETUP = Setup(64, 2, 8, 16, "identity", CPU, torch.bfloat16)
GROUPS = {
    (group.name, group.variant): group
    for group in contestants.all_groups(SETUP, [Case(2, 32)], Case(2, 32))
}
X = 64 * 2 * 8 * 2  # bytes of one (B, N, H, D) in bfloat16: B n = 64, 2 heads of 8
ROW = 8 * 2


@pytest.mark.parametrize(
    ("key", "forward", "backward"),
    [
        (("linear_attention", "causal"), 4 * X, 7 * X),
        (("block_attention", "softmax causal"), 4 * X, 7 * X),
        # theta (4) and reflection (8) in float32 are read; theta has a gradient
        (("norm_attention", "causal"), 4 * X + 4 * 12, 7 * X + 4 * 12 + 4 * 4),
        (("rms_norm", ""), 2 * X, 3 * X),
        (("gated_silu", ""), 3 * 64 * 1365 * 2, 5 * 64 * 1365 * 2),
        (("feature_map_and_lrpe", ""), 4 * X + 48, 6 * X + 48 + 16),
    ],
    ids=str,
)
def test_least_bytes(key, forward, backward):
    group = GROUPS[key]
    ours = next(c for c in group.contestants if c.name == "ours (torch)")
    _, sizes = make_call(ours, group.inputs(Case(2, 32)), FORWARD)
    assert sizes == {"forward": forward, "backward": backward}


def test_least_bytes_of_a_step():
    """3 sequences, 2 heads: the 8 x 8 float32 state twice, q, k, v and o once; and
    half a block of 16 keys and values, k and v of the token read and written, q, o."""
    linear = GROUPS["decode_step", "linear attention"].least_bytes(Case(3, 40))
    assert linear == 3 * 2 * (2 * 256 + 4 * ROW)
    block = GROUPS["decode_step", "block attention"].least_bytes(Case(3, 40))
    assert block == 3 * 2 * (8 * 2 * ROW + 6 * ROW)


def test_bandwidth_is_that_of_the_median_copy(monkeypatch):
    monkeypatch.setitem(roofline.BUFFER_BYTES, "cpu", 1000)
    seconds = iter([9, 9, *[0.5] * 11, *[2.0] * 9])
    monkeypatch.setattr(roofline, "seconds_of", lambda *_: next(seconds))
    measured = roofline.copy_bandwidth(CPU)
    assert measured == {"bytes_per_second": 4000, "buffer_bytes": 1000, "copies": 20}


def test_the_flushed_buffer_is_larger_than_the_cache(monkeypatch):
    cache = 2**30
    monkeypatch.setattr(cold_cache, "last_cache_bytes", lambda device: cache)
    assert cold_cache.buffer_bytes(CPU) == 2 * cache
    monkeypatch.setattr(cold_cache, "last_cache_bytes", lambda device: 0)
    assert cold_cache.buffer_bytes(CPU) == cold_cache.SMALLEST["cpu"]


def test_the_cache_of_a_cpu_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(cold_cache, "L3", tmp_path / "size")
    assert cold_cache.last_cache_bytes(CPU) == 0
    (tmp_path / "size").write_text("32768K\n")
    assert cold_cache.last_cache_bytes(CPU) == 32 * 2**20


MIB = 2**20


def test_counts_what_lives_at_one_time():
    def call():
        first = torch.empty(3 * MIB, dtype=torch.uint8)
        second = torch.empty(2 * MIB, dtype=torch.uint8)
        del first, second
        return torch.empty(4 * MIB, dtype=torch.uint8)

    assert peak_bytes(call, CPU) == 5 * MIB


def test_inputs_do_not_count():
    held = torch.zeros(MIB)
    assert peak_bytes(lambda: held + 1, CPU) == pytest.approx(4 * MIB, abs=99)
    assert peak_bytes(lambda: held.add_(1), CPU) < 100


def test_the_backward_pass_counts():
    x = torch.ones(MIB, requires_grad=True)

    def call():
        return torch.autograd.grad(x.exp(), x, torch.ones(MIB))

    # exp(x), the gradient that goes in and the one that comes out, float32
    assert peak_bytes(call, CPU) == 3 * 4 * MIB


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


@pytest.mark.slow
@pytest.mark.parametrize("mode", [FORWARD, TRAINING])
def test_agrees_with_the_resident_set_where_tensors_are_large(mode):
    try:
        CLEAR.write_text("5")
    except OSError as error:
        pytest.skip(f"no high-water mark of the resident set here: {error}")
    command = [sys.executable, "-m", "tests.benchmarks.harness.resident_peak", mode]
    root = ROOT
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counted, resident = map(int, done.stdout.split())
    assert counted >= 2 * 64 * MIB
    assert abs(counted - resident) < 0.15 * counted
