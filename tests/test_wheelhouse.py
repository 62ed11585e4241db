"""scripts/wheelhouse.sh: what it asks pip for."""

import os
import re
import subprocess
from importlib.metadata import requires

import pytest

from tests.paths import ROOT

CONSTRAINTS = (ROOT / "constraints.txt").read_text().splitlines()


@pytest.fixture
def wheelhouse(tmp_path):
    """Runs the script with a Python that notes its arguments and makes a wheel."""
    asked, out = tmp_path / "asked", tmp_path / "wheels"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >>{asked}\necho wheel >{out}/a.whl\n')
    python.chmod(0o755)

    def run(*arguments):
        done = subprocess.run(
            ["bash", ROOT / "scripts" / "wheelhouse.sh", *arguments],
            env=os.environ | {"PYTHON": str(python)},
            capture_output=True,
            text=True,
        )
        return done, asked.read_text().splitlines() if asked.exists() else []

    run.out = out
    return run


def pinned(line):
    return [word for word in line.split() if "==" in word]


def needed(name):
    """What an installed package requires, of extras for fairseq; torch and numpy are
    there, and of what fairseq asks for, its import loads a part."""
    extra = 'extra == "fairseq"'
    listed = [each for each in requires(name) or [] if ";" not in each or extra in each]
    found = {re.match(r"[\w-]+", each)[0].replace("_", "-") for each in listed}
    found -= {"torch", "numpy"}
    return found.union(*map(needed, found - {"ve-fairseq"}))


def test_versions_are_those_of_the_constraints(wheelhouse):
    done, (download, wheel) = wheelhouse("--out", wheelhouse.out, "--python", "3.11")
    assert done.returncode == 0, done.stderr
    assert "1 wheels" in done.stdout
    names = pinned(download)
    some = {"ve-fairseq==0.12.3", "pytest-xdist==3.8.0"}
    assert some < set(names) <= set(CONSTRAINTS)
    plain = {name.partition("==")[0].replace("_", "-") for name in names}
    assert {"tyro", "filelock"} < needed("fairseq-transnormer") <= plain
    assert not any(name.startswith(("torch", "numpy", "triton")) for name in names)
    assert "--python-version 3.11" in download and "--no-deps" in download
    assert "--platform manylinux2014_x86_64" in download
    assert pinned(wheel) == ["antlr4-python3-runtime==4.9.3"]
