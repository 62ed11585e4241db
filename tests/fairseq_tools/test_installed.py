"""The plugin works when it is pip-installed, from any folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

from .conftest import logged, training_arguments


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the installed package in it."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
            "--no-build-isolation", "--no-index", "--target", str(folder), str(ROOT),
        ],
        check=True,
    )  # fmt: skip
    return folder


@pytest.mark.slow
def test_fairseq_train_with_the_installed_package(site, data_bin, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(site)}
    where = (
        "import importlib.util as u, os; "
        "print(os.path.dirname(u.find_spec('fairseq_transnormer').origin))"
    )
    user_dir = subprocess.run(
        [sys.executable, "-c", where],
        check=True, capture_output=True, text=True, env=environment, cwd=tmp_path,
    ).stdout.strip()  # fmt: skip
    assert Path(user_dir) == site / "fairseq_transnormer"
    run = subprocess.run(
        [
            sys.executable, "-m", "fairseq_cli.train", str(data_bin),
            "--user-dir", user_dir,
            *training_arguments("transnormer_t2_tiny", tmp_path / "ck", max_update=3),
        ],
        capture_output=True, text=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert len(logged(run.stdout + run.stderr, "train_inner")) == 3
    assert (tmp_path / "ck" / "train.log").exists()  # of this package's loop
