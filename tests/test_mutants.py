"""What shows that tests can fail: the list of mutants, its runner, and no early end."""

import ast
import subprocess

import pytest

from tests.mutants import MUTANTS, Mutant
from tests.mutants.runner import failing_before, run_mutants
from tests.paths import ROOT, TESTS

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
        compile(text.replace(mutant.old, mutant.new), mutant.name, "exec")


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_tests_that_fail_anyway_are_told(repository):
    tried = [mutant("a", "2 * x", "3 * x")]
    assert not failing_before(tried, repository)
    (repository / "test_thing.py").write_text(TEST.replace("8", "9"))
    told = []
    assert failing_before(tried, repository, told.append)
    assert "test_it" in "".join(told)


def ends_unchecked(function: ast.FunctionDef) -> list[int]:
    """Lines of ``return`` in front of which, in their block, nothing is checked."""
    lines = []
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

    def look(node: ast.AST) -> None:
        for block in (getattr(node, name, []) for name in ("body", "orelse")):
            checked = False
            for each in block if isinstance(block, list) else []:
                if isinstance(each, ast.Return) and not checked:
                    lines.append(each.lineno)
                # a call may be a check of its own; what is assigned is none
                checked |= isinstance(each, ast.Assert | ast.With | ast.Expr)
                if not isinstance(each, inner):
                    look(each)
        for handler in getattr(node, "handlers", []):
            look(handler)

    look(function)
    return lines


def test_no_test_returns_before_it_has_checked_anything():
    """It would count as passed; parameters that do not apply are left out instead."""
    found, functions = [], 0
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                functions += 1
                found += [f"{path}:{line}" for line in ends_unchecked(node)]
    assert functions > 1000 and not found, found


def test_a_return_in_front_of_all_checks_is_seen():
    text = "def test_it(x):\n    if x:\n        {}\n        return\n    assert x\n"
    for check, line in (("y = 1", [4]), ("assert x", []), ("check(x)", [])):
        (function,) = ast.parse(text.format(check)).body
        assert ends_unchecked(function) == line
