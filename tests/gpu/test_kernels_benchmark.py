"""The benchmark of the ops on a GPU: ours are right, and CUDA graphs hold them."""

import pytest
import torch

from benchmarks.harness.cases import Deadline
from benchmarks.harness.cuda_graphs import captured
from benchmarks.harness.phases import GRAPH, LAUNCHED
from benchmarks.harness.timing import Repeats
from benchmarks.kernels import contestants
from benchmarks.kernels.contestants import Case, Setup
from benchmarks.kernels.kernel_measurement import Rules, measure


@pytest.mark.parametrize("name", contestants.NAMES)
def test_ours_are_measured_with_both_timings(name):
    setup = Setup(
        tokens=512,
        heads=2,
        width=64,
        block_size=64,
        feature_map="identity",
        device=torch.device("cuda"),
        dtype=torch.bfloat16,
    )
    rules = Rules(Repeats(2, 2, 1.0), "wall", [], 1.0, Deadline(60))
    groups = contestants.all_groups(setup, [Case(2, 256)], Case(2, 256))
    for group in groups:
        ours = [c for c in group.contestants if c.name == "ours (triton)"]
        # head widths of 256 have no kernels
        if group.name != name or not ours or group.variant.endswith("D256"):
            continue
        rows = list(measure(group, ours, setup, rules))
        assert {row.get("timing") for row in rows} == {LAUNCHED, GRAPH}
        for row in rows:
            assert "skipped" not in row and not row["wrong"], row


def test_a_captured_call_runs_again():
    x = torch.zeros(4, device="cuda")
    replay = captured(lambda: lambda: x.add_(1))
    before = x.clone()
    replay()
    replay()
    assert (x - before).tolist() == [2.0] * 4
