"""The example of docs/architecture.md: a file and a line make a system."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.paths import CONFIGS, DOCS, PACKAGE, ROOT


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package, configs and benchmarks with the page's file and line."""
    place = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in (PACKAGE, CONFIGS, ROOT / "benchmarks"):
        shutil.copytree(folder, place / folder.name, ignore=ignored)
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Adding an attention")[2]
    path = re.search(r"`(fairseq_transnormer/modules/baselines/\w+\.py)`", section)[1]
    file = re.search(r"```python\n(.*?)```", section, re.S)[1]
    line = re.search(r"```\n(System.*?)```", section, re.S)[1]
    (place / path).write_text(file)
    systems = place / "fairseq_transnormer/modules/systems.py"
    text = systems.read_text()
    last = "    )\n}  # fmt: skip\n"
    assert text.count(last) == 1
    systems.write_text(text.replace(last, f"        {line.strip()}\n{last}"))
    return place


def run(copy, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(copy)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


SEEN = """
import os, torch
import fairseq_transnormer.plugin
from fairseq.models import MODEL_REGISTRY
from benchmarks import lra_speed
from fairseq_transnormer.analysis import systems as page
from fairseq_transnormer.modules import CausalLanguageModel, LanguageModelConfig
from fairseq_transnormer.modules.systems import SYSTEMS

names = sorted(name for name in MODEL_REGISTRY if "relu_linear" in name)
print(fairseq_transnormer.__file__, *names)
print(SYSTEMS["relu_linear"].label in lra_speed.SYSTEMS)
config = LanguageModelConfig(attention_types="diag*3,relu_linear*3", backend="torch")
page.SYSTEMS = {"relu_linear": SYSTEMS["relu_linear"]}  # the others take their time
print(page.language_models())
print(page.arena())
# what an op would take that is not told the configuration's
os.environ["FAIRSEQ_TRANSNORMER_BACKEND"] = "none such"
CausalLanguageModel(config, 9)(torch.tensor([[5, 6]]))
"""


def test_models_tables_and_benchmarks_have_it(copy):
    first, measured, *printed = run(copy, "-c", SEEN).splitlines()
    path, *names = first.split()
    assert path.startswith(str(copy)) and measured == "True"
    prefixes = ("", "lra_", "roberta_")
    expected = {f"{prefix}relu_linear" for prefix in prefixes}
    assert {*names} == expected | {"relu_linear_tiny", "roberta_relu_linear_tiny"}
    (row,) = [line for line in printed if line.startswith("| ReLU ")]
    assert "`relu_linear`" in row and "156,000,256" in row and "38.5" in row
    assert any(line.startswith("| `lra_relu_linear` | ") for line in printed)
