"""The tables of GPUs in docs/benchmarks.md."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.harness.phases import GRAPH, LAUNCHED
from benchmarks.kernels.targets import KERNEL
from benchmarks.report import gpu_runs
from tests.benchmarks.kernels.test_targets import norm, run


def test_the_page_has_the_runs_of_the_results_folder(tmp_path):
    page = shutil.copy(gpu_runs.PAGE, tmp_path)
    gpu_runs.write(Path(page))
    assert Path(page).read_text() == gpu_runs.PAGE.read_text()


def test_a_run_becomes_a_table(tmp_path):
    measured = run(
        norm(512, KERNEL, 1e-3, least=1),
        norm(512, KERNEL, 2e-3, least=1, timing=LAUNCHED),
        norm(512, "fla peer", 2e-3, least=1, timing=GRAPH),
    )
    measured["settings"] |= {"tokens": 4096, "heads": 8, "head_width": 64}
    measured["settings"] |= {"dtype": "bfloat16"}
    folder = tmp_path / "gpu"
    (folder / "h200").mkdir(parents=True)
    (folder / "h200/kernels.json").write_text(json.dumps(measured))
    made = gpu_runs.section(folder)
    assert "| ours (triton) | 50% (2) | 100% (1) |" in made
    assert "2.00x (causal, n = 512): met" in made
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="page.md"):
        gpu_runs.write(page, folder)
