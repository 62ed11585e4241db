"""The page: each cell from its samples, computed here by hand."""

import json

import pytest

from benchmarks import report
from benchmarks.report import View, cells, frame, pivot, views_of
from tests.messages import command_refuses
from tests.paths import ROOT

from .runs import run_command


def run_of(benchmark, rows, **settings):
    return {
        "benchmark": benchmark,
        "command": f"python -m benchmarks {benchmark} --some",
        "environment": {"device": "a CPU", "threads": 1, "torch": "2"},
        "settings": settings,
        "complete": True,
        "measurements": rows,
    }


ROWS = [
    {"provider": name, "length": length, "batch": 2, "seconds": seconds}
    | {"peak_bytes": 3 * 2**20 * length, "mode": "m"}
    for name, length, seconds in (
        ("slow", 16, [0.004, 0.002, 0.003, 0.006, 0.005]),
        ("slow", 8, [0.002] * 3),
        ("quick", 8, [0.001] * 3),
        ("quick", 16, [0.001, 0.002]),
    )
] + [{"provider": "none", "length": 8, "skipped": "no\nreason"}]


def test_a_pivot_has_medians_in_order():
    rows = frame(run_of("attention_lengths", ROWS))
    found = pivot(rows, View("t", "time"))
    assert [*found.index] == ["slow", "quick"] and [*found.columns] == [8, 16]
    assert found.loc["slow", 16] == pytest.approx(4)  # ms
    assert found.loc["quick", 16] == pytest.approx(1.5)


def op(provider, seconds, moved=2e6, **more):
    row = {"op": "o", "variant": "v", "provider": provider, "batch": 1, "length": 8}
    row |= {"mode": "forward", "timing": "launched", "least_bytes": moved}
    row |= {"same": True, "wrong": False, "ours": False, "peak_bytes": 10}
    return row | {"seconds": seconds} | more


def test_ops_have_their_share_of_the_bandwidth_and_marks():
    rows = [
        op("a", [0.002]),
        op("b", [0.001], same=False),
        op("c", [0.004], wrong=True),
    ]
    run = run_of("ops", rows, copy_bandwidth=1e10)
    (heading, found, view), *_ = views_of(run)
    assert heading.startswith("o, v, forward, launched")
    texts = {row["length"]: row["8"] for row in cells(found, view)}
    # 2 MB in 2, 1 and 4 ms at 10 GB/s
    assert texts == {"a": "10% (2)", "*b*": "20% (1)", "c (WRONG)": "5% (4)"}


def test_the_page(tmp_path, capsys):
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (tmp_path / "gpu").mkdir()
    one, two = run_of("attention_lengths", ROWS), run_of("token_cost", [])
    two["measurements"] = [
        {"provider": "TransNormer T2", "context": n, "seconds": [1e-3], "kept_bytes": 8}
        for n in (8, 16)
    ]
    (folder / "several.json").write_text(json.dumps({"one": two, "two": two}))
    (folder / "one.json").write_text(json.dumps(one))
    gpu = run_of("ops", [op("a", [0.002])], copy_bandwidth=1e10) | {"complete": False}
    (tmp_path / "gpu/h1.json").write_text(json.dumps({"ops": gpu, "notes": {"x": 1}}))
    made = []
    for _ in range(2):
        assert run_command(["report", "--folder", str(folder)]) == 0
        names = ("README.md", "one.png", "two.png")
        made.append([(folder / name).read_bytes() for name in names])
    assert made[0] == made[1] and made[0][1] != made[0][2]
    page = (folder / "README.md").read_text()
    # one run in a file of its own takes the place of the run of its name
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles == [f"## {name}: a CPU" for name in ("h1_ops", "one", "two")]
    assert "python -m benchmarks attention_lengths --some" in page
    assert "This run was cut off" in page and "- no\nreason: none" in page
    (folder / "README.md").write_text("# Mine")
    words = ["report", "--folder", str(folder)]
    command_refuses(run_command, words, capsys, "README.md")
    assert (folder / "README.md").read_text() == "# Mine"


def test_the_committed_page_is_that_of_the_committed_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "draw", lambda *unused: None)
    folder = ROOT / "results/benchmarks"
    runs = report.runs_of([folder, ROOT / "results/gpu"])
    parts = [
        part
        for name, run in runs.items()
        for part in report.section(name, run, tmp_path)
    ]
    page = (folder / "README.md").read_text()
    assert len(runs) > 15 and page.endswith("\n\n".join(parts) + "\n")
