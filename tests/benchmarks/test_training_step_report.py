"""The report of the training step, from rows with known numbers."""

import pytest

from benchmarks import report
from benchmarks.harness import results
from benchmarks.harness.phases import AS_SHIPPED, LAYER, MODEL, WITH_SDPA
from benchmarks.training import training_step_report as shape
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


FAST = [
    row(TORCH, 512, 9.0, 9),
    row(TRITON, 512, 1.0, 8),
    row(WITH_SDPA, 512, 1.0, 10),
    row(TRITON, 8192, 1.0, 9),
    row(WITH_SDPA, 8192, 2.1, 10),
]


def test_targets_met():
    judged = shape.targets(run(*FAST))
    assert [verdict for _, _, verdict in judged] == ["met"] * 3
    figures = [("1x",), ("2.1x",), ("0.8x", 512, "0.9x", 8192)]
    for (_, measured, _), expected in zip(judged, figures, strict=True):
        assert_names(measured, *expected, TRITON)


def test_targets_missed():
    slow = [
        row(TORCH, 512, 1.01, 10),
        row(WITH_SDPA, 512, 1.0, 10),
        row(TORCH, 8192, 1.0, 9),
        row(WITH_SDPA, 8192, 1.9, 10),
    ]
    judged = shape.targets(run(*slow))
    assert [verdict for _, _, verdict in judged] == ["missed"] * 3
    assert judged[0][1] == f"0.99x, {TORCH}"


@pytest.mark.parametrize(
    "where", [dict(device="cpu"), dict(dtype="float32"), dict(device="cpu", dtype="x")]
)
def test_targets_are_for_a_gpu(where):
    judged = shape.targets(run(*FAST, **where))
    assert [entry[1] for entry in judged] == ["-"] * 3
    for *_, verdict in judged:
        assert_names(verdict, "not measured", "GPU")


def test_targets_without_their_rows():
    """One length alone, the other skipped; and nothing at all."""
    skipped = {"part": MODEL, "contestant": TRITON, "length": 8192, "batch": 1}
    skipped["skipped"] = "out of memory"
    judged = shape.targets(run(*FAST[:3], skipped, FAST[4]))
    assert [verdict for _, _, verdict in judged] == ["met", "not measured", "met"]
    judged = shape.targets(run(skipped))
    assert [verdict for _, _, verdict in judged] == ["not measured"] * 3


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
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "README.md").read_text()
    for line in (
        f"| {TRITON} | 8,190 (8,190-8,190) | 8,190 (8,190-8,190) |",
        f"| {AS_SHIPPED} | 2,050 (2,050-2,050) | - |",
        f"| {TRITON} | 1x, 0.8x | 2.1x, 0.9x |",
        f"| {AS_SHIPPED} | 0.25x, 3x | - |",
        "| TransNormer T2 (triton), diag | 16,400 (16,400-16,400) | - |",
        "| TransNormer T2 (triton), diag | 1 MiB | - |",
    ):
        assert line in page.splitlines()
    assert lines_naming(page, "too much", MODEL, AS_SHIPPED, 8192, 1)
