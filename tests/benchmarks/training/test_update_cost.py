"""An update in both ways, the loss beside libraries, and the optimizers."""

import json

import pytest

from benchmarks.harness.phases import ALL_LOGITS, AS_SHIPPED, FAIRSEQS, OURS, WITH_SDPA
from benchmarks.report import command as report
from benchmarks.training import optimizer_step, output_loss, update_cost

QUICK = "--threads 1 --least-repeats 2 --most-repeats 2".split()


@pytest.fixture(autouse=True)
def small_models(monkeypatch):
    for name, arch in update_cost.MODELS.items():
        monkeypatch.setitem(update_cost.MODELS, name, f"{arch}_tiny")
    monkeypatch.setattr(update_cost, "SIZE", {"width": 32, "heads": 2, "layers": 2})


def rows_of(path):
    return json.loads(path.read_text())["measurements"]


@pytest.mark.parametrize(
    ("dtype", "close"), [("float32", 1e-5), ("bfloat16", 1e-2)], ids=str
)
def test_both_ways_have_the_same_loss(tmp_path, dtype, close):
    path = tmp_path / "update_cost.json"
    update_cost.main(
        ["--models", "TransNormer T2", WITH_SDPA, "--batches", "32x16", "--dtype"]
        + [dtype, "--vocabulary", "80", "--output", str(path), *QUICK]
    )
    rows = rows_of(path)
    assert {row["model"] for row in rows} == {"TransNormer T2", WITH_SDPA}
    for theirs, ours in zip(rows[::2], rows[1::2], strict=True):
        assert (theirs["way"], ours["way"]) == (FAIRSEQS, OURS)
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=close)
        assert all(len(row["seconds"]) == 2 and row["peak_bytes"] for row in rows)
    assert report.main(["--folder", str(tmp_path)]) is None
    page = (tmp_path / "README.md").read_text()
    assert f"TransNormer T2, {OURS}" in page and "beside fairseq's way" in page


def test_what_does_not_fit_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(update_cost, "available_bytes", lambda: 1000)
    path = tmp_path / "update_cost.json"
    update_cost.main(
        ["--models", AS_SHIPPED, "--batches", "16x16", "--vocabulary", "80"]
        + ["--output", str(path), *QUICK]
    )
    theirs, ours = rows_of(path)
    assert "free" in theirs["skipped"] and "seconds" in ours


def test_losses_and_errors(tmp_path):
    path = tmp_path / "output_loss.json"
    output_loss.main(
        ["--tokens", "40", "--width", "16", "--vocabulary", "90", "--output", str(path)]
        + QUICK
    )
    rows = {row["contestant"]: row for row in rows_of(path)}
    assert rows.keys() == output_loss.CONTESTANTS.keys()
    for name in (output_loss.OURS, ALL_LOGITS):
        assert rows[name]["weight_error"] < 1e-5 and rows[name]["loss_error"] < 1e-6
    assert "skipped" in rows["cut-cross-entropy"]
    assert report.main(["--folder", str(tmp_path)]) is None
    assert "**Errors**" in (tmp_path / "README.md").read_text()


WEIGHTS = "--threads 1 --least-repeats 2 --most-repeats 2 --weights 1000 40000"


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "optimizer_step_cpu.json"
    optimizer_step.main([*WEIGHTS.split(), "--output", str(path)])
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
