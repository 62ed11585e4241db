"""What steps wait for: shares by hand, and what the command writes."""

import json

import pytest
from pandas import DataFrame

from benchmarks.cost_model import step_profile
from benchmarks.cost_model.machines import GOOD, machine_of


def test_a_kernel_takes_the_longest_of_its_three():
    machine = machine_of(step_profile.MACHINE, GOOD)
    kernels = DataFrame(
        {
            "name": ["product", "copy", "small"],
            "flops": [2 * machine.flops, 0.0, 0.0],
            "bytes": [machine.memory, 3 * machine.memory, 1.0],
            "single": [False, False, True],
        }
    )
    seconds = step_profile.seconds_of(kernels)
    assert list(seconds) == pytest.approx([2.0, 3.0, machine.launch])


def test_the_command(tmp_path, capsys):
    path = tmp_path / "steps.json"
    name = "LRA text, 16 x 4,096"
    step_profile.main(["--steps", name, "--output", str(path)])
    before, after = json.loads(path.read_text())["measurements"]
    assert (before["way"], after["way"]) == ("before", "after")
    assert after["kernels"] < before["kernels"]
    assert after["milliseconds"] < before["milliseconds"]
    for row in (before, after):
        assert 0 < row["products"] < 1 and 0 <= row["launches"] < 1
        shares = [share for _, share in row["largest"].values()]
        assert shares == sorted(shares, reverse=True) and sum(shares) < 1
    # nothing of building the model is counted
    assert "uniform_" not in after["largest"]
    assert name in capsys.readouterr().out
