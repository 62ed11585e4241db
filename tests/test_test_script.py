"""scripts/test.sh: which parts it runs, and that it fails if one of them does."""

import os
import re
import shutil
import subprocess

import pytest

from tests.paths import SCRIPTS

# notes what it is called with; the call that FAILS matches ends with 3
STAND_IN = """#!/bin/bash
call="$(basename "$0") $* interpreted=${TRITON_INTERPRET:-0}"
echo "$call" >>"$NOTES"
[[ -n $FAILS && $call == *$FAILS* ]] && exit 3
exit 0
"""


@pytest.fixture
def run(tmp_path):
    """run(*arguments, fails=): the script where its commands are noted."""
    tools = (f".venv/bin/{name}" for name in ("python", "ruff", "mypy"))
    for name in (*tools, "scripts/install.sh"):
        command = tmp_path / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(STAND_IN)
        command.chmod(0o755)
    shutil.copy(SCRIPTS / "test.sh", tmp_path / "scripts")
    shutil.copy(SCRIPTS.parent / "setup.py", tmp_path)
    notes = tmp_path / "notes"

    def start(*arguments: str, fails: str = "") -> tuple[int, list[str], str]:
        notes.write_text("")
        environment = {**os.environ, "NOTES": str(notes), "FAILS": fails}
        environment.pop("TRITON_INTERPRET", None)
        done = subprocess.run(
            ["bash", tmp_path / "scripts" / "test.sh", *arguments],
            **{"capture_output": True, "text": True},
            env=environment | {"NUMPROCESSES": "3", "TMPDIR": str(tmp_path)},
        )
        assert not list(tmp_path.glob("tmp.*"))
        return done.returncode, sorted(notes.read_text().splitlines()), done.stdout

    return start


def parts(calls: list[str]) -> dict[str, str]:
    """The calls of Python by what they are."""
    kinds = {
        "interpreted=1": "interpreter",
        "tests.reference_computation": "reference",
        " pip install ": "oldest Triton",
        "tests/ops/compilation": "compilation",
        "tests.rows": "rows",
        "pytest": "tests",
    }
    found = {}
    for call in calls:
        for mark, name in kinds.items():
            if call.startswith("python") and mark in call:
                found[name] = call
                break
    return found


def test_help_runs_nothing(run):
    for word in ("--help", "-h"):
        code, calls, said = run(word)
        assert code == 0 and calls == []
        assert "usage: scripts/test.sh" in said and "--all" in said


def test_everything_but_what_is_slow(run):
    code, calls, said = run()
    found = parts(calls)
    assert code == 0 and set(found) == {"tests", "interpreter", "rows", "reference"}
    assert [call.split()[0] for call in calls] == [
        "install.sh", "mypy", *["python"] * 4, "ruff", "ruff",
    ]  # fmt: skip
    for name in ("tests", "interpreter"):
        assert "--numprocesses 3 -m not slow" in found[name]
    assert "tests/ops/interpreter" in found["interpreter"]
    assert "tests.rows --gpus 0" in found["rows"]
    *durations, total = re.findall(r"^(\w.*?) +\d+:\d\d", said, flags=re.M)
    assert len(durations) == 4 and total == "all"
    # of those that nothing runs beside, and of the whole
    assert len(re.findall(r"\d+ CPU s$", said, flags=re.M)) == 4


def test_all_of_it(run):
    code, calls, _ = run("--all")
    found = parts(calls)
    parts_of_all = {"tests", "interpreter", "rows", "reference"}
    assert code == 0 and set(found) == parts_of_all | {"oldest Triton", "compilation"}
    assert "triton==3.6.*" in found["oldest Triton"]
    assert not any("-m not slow" in call for call in found.values())
    assert "tests.rows all " in found["rows"]


def test_arguments_are_pytests(run):
    code, calls, _ = run("-k", "causal", "tests/ops")
    assert code == 0 and set(parts(calls)) == {"tests", "reference"}
    assert "-m not slow -k causal tests/ops " in parts(calls)["tests"]
    _, calls, _ = run("--all", "-k", "causal")
    assert "--numprocesses 3 -k causal " in parts(calls)["tests"]


@pytest.mark.parametrize(
    "part", ["install.sh", "ruff check", "ruff format", "pytest", "interpreted=1"]
)
def test_what_fails_fails_the_script(run, part):
    code, _, said = run(fails=part)
    assert code != 0 and "all" not in said.split()


def test_a_row_that_fails_fails_the_script(run):
    code, calls, said = run(fails="tests.rows")
    assert code != 0 and "rows" in parts(calls) and "all" not in said.split()
