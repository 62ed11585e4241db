"""Applies mutants to copies of the repository, one at a time, and runs their tests.

A copy is made for each mutant, so that none can touch the checkout or see what another
left. Its tests run in a fork of one process that has imported torch and fairseq, which
takes most of the time of a small test. What that process has of this repository is the
runner alone: a fork forgets it, and imports everything from its copy.
"""

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable
from pathlib import Path

from .mutant import Mutant

# pytest's exit codes: all passed, some failed; its own error, wrong usage, no test
PASSED, FAILED = 0, 1
NOTHING_RAN = (3, 4, 5)
TOO_SLOW = -1
# for each of a mutant's tests
SECONDS = 600
PYTEST = ["-q", "--no-header", "-p", "no:cacheprovider", "--tb=line"]
# what most tests import; optimizers of torch import dynamo
PRELOADED = ("torch", "torch._dynamo", "fairseq_cli.train", "fairseq_cli.hydra_train")
PRELOADED += ("pytest", "hypothesis", "scipy.stats", "sklearn.metrics", "datasets")
OWN_PACKAGES = ("tests", "fairseq_transnormer", "data_prep", "benchmarks")


def import_what_tests_need() -> None:
    """Before the forks; nothing of this repository may be among it."""
    # one thread: a fork has no other, and tensors are small
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in PRELOADED:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)


def copy_of(root: Path, place: Path) -> Path:
    """What git knows, or would take, of the checkout, changed files as they are."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    for name in listed.decode().split("\0"):
        if (root / name).is_file():
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target)
    return place


def run_mutants(
    mutants: Iterable[Mutant], root: Path, tell: Callable[[str], None] = print
) -> dict[str, list[Mutant]]:
    """Try each mutant.

    Args:
        mutants: of code below ``root``.
        root: the checkout, which stays as it is.
        tell: called with a line for each.

    Returns:
        "killed", "survived" and "broken" (it does not fit the code, or its tests
        cannot be run): the mutants.
    """
    outcome: dict[str, list[Mutant]] = {"killed": [], "survived": [], "broken": []}
    for mutant in mutants:
        begun = time.monotonic()
        state, why = _try(mutant, root)
        outcome[state].append(mutant)
        tell(f"{state:8} {time.monotonic() - begun:5.1f} s  {mutant.name}")
        if state == "broken":
            tell(why)
    return outcome


def failing_before(
    mutants: Iterable[Mutant], root: Path, tell: Callable[[str], None] = print
) -> bool:
    """Whether tests of these mutants fail on the code as it is: they prove nothing."""
    failing = False
    for interpreted in (False, True):
        of_kind = [m.tests.split() for m in mutants if m.interpreted == interpreted]
        tests = list(dict.fromkeys(test for each in of_kind for test in each))
        if not tests:
            continue
        with tempfile.TemporaryDirectory() as place:
            copy = copy_of(root, Path(place) / "copy")
            code, output = _run(tests, copy, interpreted, stop_early=False)
        if code != PASSED:
            failing = True
            tell(output)
    return failing


def _try(mutant: Mutant, root: Path) -> tuple[str, str]:
    fault = mutant.fault(root)
    if fault:
        return "broken", fault
    with tempfile.TemporaryDirectory() as place:
        copy = copy_of(root, Path(place) / "copy")
        mutant.apply(copy)
        code, output = _run(mutant.tests.split(), copy, mutant.interpreted)
    if code in (*NOTHING_RAN, TOO_SLOW):
        return "broken", output
    return "survived" if code == PASSED else "killed", output


def _run(
    tests: list[str], copy: Path, interpreted: bool, stop_early: bool = True
) -> tuple[int, str]:
    """pytest's exit code, or TOO_SLOW, and its output, of ``tests`` in ``copy``."""
    arguments = [*PYTEST, *(["-x"] if stop_early else []), *tests]
    log = copy.parent / "log"
    start = _pytest_in_a_process_of_its_own if interpreted else _pytest_in_this_process
    process = _fork(log, lambda: start(arguments, copy))
    code = _waited(process, SECONDS * len(tests))
    output = log.read_text(encoding="utf-8", errors="replace")[-4000:]
    if code == TOO_SLOW:
        output += f"\nstopped after {SECONDS * len(tests)} s"
    return code, output


def _environment(copy: Path) -> dict[str, str]:
    """For the tests and the commands that they start."""
    temporary = copy.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    return {
        "PYTHONPATH": str(copy),
        # a changed file of the same size and second would pass for the old one
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(temporary),
        "OMP_NUM_THREADS": "1",
    }


def _fork(log: Path, run: Callable[[], int]) -> int:
    """A child with a group of its own that writes to ``log``; its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        code = 3  # pytest's for an internal error
        try:
            os.setsid()
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = run()
        finally:
            os._exit(code)
    return process


def _pytest_in_a_process_of_its_own(arguments: list[str], copy: Path) -> int:
    environment = os.environ | _environment(copy) | {"TRITON_INTERPRET": "1"}
    os.chdir(copy)
    command = [sys.executable, "-m", "pytest", *arguments]
    os.execve(sys.executable, command, environment)


def _pytest_in_this_process(arguments: list[str], copy: Path) -> int:
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
    sys.stdin = open(os.devnull)
    os.environ.update(_environment(copy))
    tempfile.tempdir = None
    sys.dont_write_bytecode = True
    os.chdir(copy)
    checkout = Path(__file__).resolve().parent.parent.parent
    sys.path[:] = [
        str(copy),
        *(each for each in sys.path if each not in ("", str(checkout))),
    ]
    for name in list(sys.modules):
        if name.split(".")[0] in OWN_PACKAGES or name == "conftest":
            del sys.modules[name]
    # processes that tests start with multiprocessing import the main module again
    sys.modules["__main__"] = types.ModuleType("__main__")
    import pytest

    code = int(pytest.main(arguments))
    sys.stdout.flush()
    return code


def _waited(process: int, seconds: float) -> int:
    """The exit code of a child that leads its group, or TOO_SLOW; ends its group."""
    end = time.monotonic() + seconds
    status = None
    while status is None and time.monotonic() < end:
        found, ended = os.waitpid(process, os.WNOHANG)
        if found:
            status = os.waitstatus_to_exitcode(ended)
        else:
            time.sleep(0.02)
    # what tests have left running, or all if it took too long
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if status is None:
        os.waitpid(process, 0)
        return TOO_SLOW
    # of a signal is failed
    return FAILED if status < 0 else status
