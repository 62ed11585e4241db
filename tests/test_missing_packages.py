"""Commands without a package that they need: one line, exit code 2."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from importlib import metadata

import pytest

from fairseq_transnormer.missing_packages import EXTRA_OF, command_of, explanation
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
        (
            ModuleNotFoundError("No module", name="fairseq.models"),
            ["transnormer[fairseq]"],
        ),
        (
            ModuleNotFoundError("No", name="safetensors"),
            ["transnormer[export]"],
        ),
        (ModuleNotFoundError("No", name="pandas"), ["transnormer[reproduce]"]),
        (ModuleNotFoundError("No", name="liger_kernel"), ["install liger_kernel"]),
        (
            ImportError("Please install\nsentencepiece"),
            ["Please install sentencepiece"],
        ),
    ],
)
def test_explanations(error, parts):
    assert_names(explanation(error), *parts)
    assert "\n" not in explanation(error)


def test_an_extra_brings_what_it_is_named_for():
    """Distributions by extra, as pip reads them; each one's modules, as Python does."""
    brings = defaultdict(set)
    for line in metadata.requires("fairseq-transnormer"):
        if found := re.fullmatch(r"([\w.-]+).*extra == \"(\w+)\".*", line):
            brings[found[2]].add(found[1].lower())
    modules = metadata.packages_distributions()
    # what fairseq itself depends on comes with it
    brings["fairseq"] |= {"hydra-core", "omegaconf", "sacrebleu"}
    missing = {
        module: extra
        for module, extra in EXTRA_OF.items()
        if not {name.lower() for name in modules.get(module, ())} & brings[extra]
    }
    assert missing == {}
