"""The report of the training step, from rows with known numbers."""

import pytest

from benchmarks.harness import results
from benchmarks.harness.phases import AS_SHIPPED, LAYER, MODEL, WITH_SDPA
from benchmarks.report import command as report
from benchmarks.report.tables import rows_of
from benchmarks.report.training import training_targets
from tests.messages import assert_names, lines_naming

TRITON, TORCH = "TransNormer T2 (triton)", "TransNormer T2 (torch)"


def row(contestant, length, seconds, peak, part=MODEL):
    row = {"part": part, "contestant": contestant, "length": length}
    return row | {"batch": 8192 // length, "seconds": [seconds] * 3, "peak_bytes": peak}


def run(*rows, dtype="bfloat16", device="gpu"):
    environment = {"device": "some device", "threads": 1, "torch": "2"}
    if device == "gpu":
        environment["cuda"] = "13.0"
    return {
        "benchmark": "training_step",
        "command": "python -m benchmarks training_step",
        "environment": environment,
        "settings": {"tokens": 8192, "vocabulary": 1000, "dtype": dtype},
        "measurements": list(rows),
    }


def judged(run):
    """(measured, verdict) of each target."""
    rows = rows_of(run)
    rows["rate"] = rows.batch * rows.length / rows.time
    frame = training_targets(rows[rows.part == MODEL], run)
    assert all("memory" in name or "tokens" in name for name in frame.index)
    return [*frame.itertuples(index=False, name=None)]


FAST = [
    row(TORCH, 512, 9.0, 9),
    row(TRITON, 512, 1.0, 8),
    row(WITH_SDPA, 512, 1.0, 10),
    row(TRITON, 8192, 1.0, 9),
    row(WITH_SDPA, 8192, 2.1, 10),
]


def test_targets_met():
    found = judged(run(*FAST))
    assert [verdict for _, verdict in found] == ["met"] * 3
    figures = [("1x",), ("2.1x",), ("0.8x", 512, "0.9x", 8192)]
    for (measured, _), expected in zip(found, figures, strict=True):
        assert_names(measured, *expected, TRITON)


def test_targets_missed():
    slow = [
        row(TORCH, 512, 1.01, 10),
        row(WITH_SDPA, 512, 1.0, 10),
        row(TORCH, 8192, 1.0, 9),
        row(WITH_SDPA, 8192, 1.9, 10),
    ]
    found = judged(run(*slow))
    assert [verdict for _, verdict in found] == ["missed"] * 3
    assert found[0][0] == f"0.99x, {TORCH}"


@pytest.mark.parametrize(
    "where", [dict(device="cpu"), dict(dtype="float32"), dict(device="cpu", dtype="x")]
)
def test_targets_are_for_a_gpu(where):
    found = judged(run(*FAST, **where))
    assert [measured for measured, _ in found] == ["-"] * 3
    for _, verdict in found:
        assert_names(verdict, "not measured", "GPU")


def test_targets_without_their_rows():
    """One length alone, the other skipped; and nothing at all."""
    skipped = {"part": MODEL, "contestant": TRITON, "length": 8192, "batch": 1}
    skipped["skipped"] = "out of memory"
    found = judged(run(*FAST[:3], skipped, FAST[4]))
    assert [verdict for _, verdict in found] == ["met", "not measured", "met"]
    found = judged(run(skipped))
    assert [verdict for _, verdict in found] == ["not measured"] * 3


def test_report(tmp_path):
    rows = [
        *FAST,
        row(AS_SHIPPED, 512, 4.0, 30),
        row("TransNormer T2 (triton), diag", 512, 0.5, 2**20, LAYER),
        {"part": MODEL, "contestant": AS_SHIPPED, "length": 8192, "batch": 1}
        | {"skipped": "out of memory: too much"},
    ]
    results.write(tmp_path / "t.json", **run(*rows))
    report.main(["--folder", str(tmp_path)])
    page = (tmp_path / "README.md").read_text()
    for line in (
        f"| {TRITON} | 8,190 (8,190-8,190) | 8,190 (8,190-8,190) |",
        f"| {AS_SHIPPED} | 2,050 (2,050-2,050) | - |",
        f"| {TRITON} | 1x, 0.8x | 2.1x, 0.9x |",
        f"| {AS_SHIPPED} | 0.25x, 3x | - |",
        "| TransNormer T2 (triton), diag | 16,400 (16,400-16,400) |",
        "| TransNormer T2 (triton), diag | 1 MiB |",
    ):
        assert line in page.splitlines()
    assert lines_naming(page, "too much", MODEL, AS_SHIPPED, 8192, 1)
