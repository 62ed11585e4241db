"""Commands without a package that they need: one line, exit code 2."""

import os
import subprocess
import sys

import pytest

from fairseq_transnormer.missing_packages import command_of, explanation
from tests.messages import assert_names
from tests.paths import ROOT

# Python imports it before all else
WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
"""


@pytest.mark.parametrize(
    "command",
    [
        "fairseq_transnormer generate --path x.pt --prompt y",
        pytest.param(
            "fairseq_transnormer classify --path x.pt --text y", marks=pytest.mark.slow
        ),
        "fairseq_transnormer export x.pt --dest y",
        pytest.param(
            "fairseq_transnormer analyse context_use x.pt --data y",
            marks=pytest.mark.slow,
        ),
        pytest.param("fairseq_transnormer analyse systems", marks=pytest.mark.slow),
        "fairseq_transnormer analyse images --data y --checkpoint a=x.pt --output z",
    ],
)
def test_without_fairseq(command, tmp_path):
    packages = ("fairseq", "fairseq_cli")
    (tmp_path / "sitecustomize.py").write_text(WITHOUT.format(packages=packages))
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert_names(done.stderr, command.split()[0], "fairseq", "pip install")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (
            ["python", "-m", "fairseq_transnormer", "analyse", "a", "x"],
            "fairseq_transnormer analyse a",
        ),
        (["python", "-m", "fairseq_transnormer", "--help"], "fairseq_transnormer"),
        (
            ["python", "-X", "dev", "-m", "benchmarks", "kernels"],
            "benchmarks kernels",
        ),
        (["python", "-m", "pytest", "fairseq_transnormer"], None),
        (["python", "program.py", "-m"], None),
        (["python", "-c", "1"], None),
        (["python"], None),
    ],
)
def test_own_commands(arguments, command):
    assert command_of(arguments) == command


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (ModuleNotFoundError("No module", name="fairseq.models"), ["ve-fairseq"]),
        (
            ModuleNotFoundError("No", name="safetensors"),
            ["transnormer[export]"],
        ),
        (ModuleNotFoundError("No", name="pandas"), ["pip install pandas"]),
        (
            ImportError("Please install\nsentencepiece"),
            ["Please install sentencepiece"],
        ),
    ],
)
def test_explanations(error, parts):
    assert_names(explanation(error), *parts)
    assert "\n" not in explanation(error)
