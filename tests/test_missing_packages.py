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
from tests.paths import CONFIGS, ROOT

# A process that has torch, and no fairseq, answers commands in forks.
WITHOUT = """
import os, runpy, shlex, sys
from importlib.machinery import PathFinder
import torch

class Without:
    find_distributions = staticmethod(PathFinder.find_distributions)

    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] not in ('fairseq', 'fairseq_cli', 'hydra', 'omegaconf'):
            return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without()
from fairseq_transnormer.missing_packages import explain_to_users
for number, line in enumerate(sys.stdin):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(f"{number}.err", os.O_WRONLY | os.O_CREAT), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = shlex.split(line)
        sys.orig_argv = ["python", "-m", *sys.argv]
        explain_to_users()
        code = 1
        try:
            try:
                runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
            except Exception:
                sys.excepthook(*sys.exc_info())
        except SystemExit as end:
            code = end.code or 0
        finally:  # without Python's end, which takes long with torch
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
RUNS = f"--config-dir {CONFIGS} --preset smoke --runs-dir runs"


def test_without_fairseq(tmp_path):
    """A line for what loads models or composes configurations."""
    refused = [
        "analyse systems",
        f"reproduce report table1 {RUNS} --results out",
        f"reproduce run table1 {RUNS} --gpus 0",
        f"reproduce list --config-dir {CONFIGS}",
    ]
    # they get as far as the file that is not there
    plain = [
        "generate --path x.pt --prompt y",
        "score --path x.pt --text y",
        "classify --path x.pt --text y",
        "export x.pt --dest y",
    ]
    lines = [*refused, *plain, f"reproduce status {RUNS}"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        input="\n".join(f"fairseq_transnormer {line}" for line in lines),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    said = [(tmp_path / f"{i}.err").read_text() for i, _ in enumerate(lines)]
    assert done.stdout.split() == ["2"] * (len(lines) - 1) + ["0"], said
    for line, error in zip(refused, said, strict=False):
        assert_names(error, line.split()[0], "fairseq", "pip install")
        assert len(error.splitlines()) == 1, error
    for error in said[len(refused) : -1]:
        assert_names(error, "x.pt", "no such checkpoint")
        assert len(error.splitlines()) == 1, error


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (
            ["python", "-m", "fairseq_transnormer", "analyse", "a", "x"],
            "fairseq_transnormer analyse a",
        ),
        (["python", "-m", "fairseq_transnormer", "--help"], "fairseq_transnormer"),
        (
            ["python", "-X", "dev", "-m", "benchmarks", "ops"],
            "benchmarks ops",
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
