"""README's tables of GPUs."""

import json
import shutil

import pytest

from benchmarks.harness.phases import GRAPH, LAUNCHED
from benchmarks.kernels.targets import KERNEL
from benchmarks.report import gpu_runs
from tests.benchmarks.kernels.test_targets import norm, run
from tests.paths import ROOT


def test_the_readme_has_the_runs_of_the_results_folder(tmp_path):
    readme = tmp_path / "README.md"
    shutil.copy(ROOT / "README.md", readme)
    gpu_runs.write(readme)
    assert readme.read_text() == (ROOT / "README.md").read_text()


def test_a_run_becomes_a_table(tmp_path):
    measured = run(
        norm(512, KERNEL, 1e-3, least=1),
        norm(512, KERNEL, 2e-3, least=1, timing=LAUNCHED),
        norm(512, "peer", 2e-3, least=1, timing=GRAPH),
    )
    measured["settings"] |= {"tokens": 4096, "heads": 8, "head_width": 64}
    measured["settings"] |= {"dtype": "bfloat16"}
    folder = tmp_path / "gpu"
    (folder / "h200").mkdir(parents=True)
    (folder / "h200/kernels.json").write_text(json.dumps(measured))
    made = gpu_runs.section(folder)
    assert "| ours (triton) | 50% (2) | 100% (1) |" in made
    assert "2.00x (causal, n = 512): met" in made
    readme = tmp_path / "README.md"
    readme.write_text("no marks")
    with pytest.raises(ValueError, match="README.md"):
        gpu_runs.write(readme, folder)
