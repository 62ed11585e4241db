"""Peak memory against known allocations and against the process's resident set."""

import subprocess
import sys

import pytest
import torch

from benchmarks.harness.memory import peak_bytes
from benchmarks.harness.phases import FORWARD, TRAINING
from tests.paths import ROOT

from .resident_peak import CLEAR

CPU = torch.device("cpu")
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
