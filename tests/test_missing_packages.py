"""Commands without a package that they need: one line, exit code 2."""

import os
import subprocess
import sys

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
for number, line in enumerate(sys.stdin):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(f"{number}.err", os.O_WRONLY | os.O_CREAT), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = shlex.split(line)
        code = 1
        try:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
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
    lines = [*refused, *plain, "reproduce status --preset smoke --runs-dir runs"]
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
