"""The benchmark of the ops on a GPU: ours are right, and CUDA graphs hold them."""

import json

import pytest
import torch

from benchmarks import registry
from benchmarks.measure import GRAPH, LAUNCHED, captured
from tests.benchmarks.runs import run_command

# the optimizers' weights are many, and the losses have no kernels of ours to capture
NAMES = [n for n in registry.REGISTRY if n not in ("adam", "linear_cross_entropy")]


@pytest.mark.parametrize("name", NAMES)
def test_ours_are_measured_with_both_timings(name, tmp_path):
    path = tmp_path / "ops.json"
    words = "ops --device cuda --quick --tokens 512 --lengths 256 --check-length 256"
    sizes = "--heads 2 --dtype bfloat16 --least-repeats 2 --seconds 0.001"
    words = [*words.split(), *sizes.split(), "--ops", name, "--output", str(path)]
    assert run_command(words) == 0
    rows = json.loads(path.read_text())["measurements"]
    ours = [row for row in rows if row["provider"] == "ours (triton)"]
    assert {row["timing"] for row in ours} == {LAUNCHED, GRAPH}
    for row in ours:
        assert "skipped" not in row and not row["wrong"], row


def test_a_captured_call_runs_again():
    x = torch.zeros(4, device="cuda")
    replay = captured(lambda: lambda: x.add_(1))
    before = x.clone()
    replay()
    replay()
    assert (x - before).tolist() == [2.0] * 4
