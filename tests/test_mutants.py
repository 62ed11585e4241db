"""The list of mutants fits the code, and its runner tells killed from survived."""

import ast
import subprocess

import pytest

from tests.mutants import MUTANTS, Mutant
from tests.mutants.runner import failing_before, run_mutants
from tests.paths import ROOT

CODE = "def double(x):\n    return 2 * x\n\n\ndef unseen():\n    return 1\n"
TEST = "from thing import double\n\n\ndef test_it():\n    assert double(4) == 8\n"


def test_every_mutant_fits_the_code():
    """Its text stands there once; whoever changes it changes the list."""
    faults = [mutant.fault(ROOT) for mutant in MUTANTS]
    assert not any(faults), "\n".join(filter(None, faults))
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_every_mutant_leaves_code_that_python_reads():
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        ast.parse(text.replace(mutant.old, mutant.new), mutant.name)


def test_the_tests_of_every_mutant_are_there():
    for test in {test for mutant in MUTANTS for test in mutant.tests.split()}:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        if name:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


@pytest.fixture
def repository(tmp_path):
    """A repository of one module with a test, in git."""
    root = tmp_path / "repository"
    root.mkdir()
    (root / "thing.py").write_text(CODE)
    (root / "test_thing.py").write_text(TEST)
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


def mutant(name, old, new):
    return Mutant(name, "thing.py", old, new, "test_thing.py")


def test_who_is_killed_and_who_survives(repository):
    tried = {
        "killed": [mutant("a", "2 * x", "3 * x"), mutant("b", "2 * x", "2 *")],
        "survived": [mutant("c", "return 1", "return 2")],
        "broken": [
            mutant("d", "no such text", ""),
            mutant("e", "return", "yield"),  # twice
            Mutant("f", "thing.py", "2 * x", "3 * x", "test_no_such_thing.py"),
        ],
    }
    told = []
    outcome = run_mutants(sum(tried.values(), []), repository, told.append)
    assert outcome == tried
    for name, state in zip("abcdef", ["killed"] * 2 + ["survived"], strict=False):
        assert any(line.startswith(state) and line.endswith(name) for line in told)
    # the checkout is as it was
    assert (repository / "thing.py").read_text() == CODE
    found = {path.name for path in repository.iterdir()}
    assert found == {".git", "thing.py", "test_thing.py"}


def test_tests_that_fail_anyway_are_told(repository):
    tried = [mutant("a", "2 * x", "3 * x")]
    assert not failing_before(tried, repository)
    (repository / "test_thing.py").write_text(TEST.replace("8", "9"))
    told = []
    assert failing_before(tried, repository, told.append)
    assert "test_it" in "".join(told)
