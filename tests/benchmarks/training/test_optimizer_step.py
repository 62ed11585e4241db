"""The optimizers' benchmark: what is measured, and its page."""

import json

import pytest

from benchmarks.report import command as report
from benchmarks.training import optimizer_step

QUICK = "--threads 1 --least-repeats 2 --most-repeats 2 --weights 1000 40000"


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "optimizer_step_cpu.json"
    optimizer_step.main([*QUICK.split(), "--output", str(path)])
    return json.loads(path.read_text())


def test_rows(written):
    rows = {(r["contestant"], r["weights"]): r for r in written["measurements"]}
    assert rows.keys() == {
        (name, number) for name in ("adam", "fused_adam") for number in (1000, 40000)
    }
    assert all(len(row["seconds"]) == 2 for row in rows.values())
    # the root of the second sum; fused, nothing that grows with the weights
    assert rows["adam", 40000]["peak_bytes"] >= 4 * 40000
    assert rows["fused_adam", 40000]["peak_bytes"] < 4000


def test_the_page(written, tmp_path):
    report.main(["--folder", str(tmp_path)])
    page = (tmp_path / "README.md").read_text()
    assert "| fused_adam | " in page and "Time divided by that of adam" in page
