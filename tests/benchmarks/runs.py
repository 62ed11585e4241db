"""Runs of the commands at tiny sizes, for all tests of the benchmarks."""

import json
import shlex
import sys
from unittest import mock

import torch

from benchmarks import __main__ as benchmarks

QUICK = "--least-repeats 2 --most-repeats 2 --threads 1"


def run_command(words: list[str]) -> int:
    """The exit code of a command, as a process of its own has it."""
    threads = torch.get_num_threads()
    try:
        with mock.patch.object(sys, "argv", ["benchmarks", *words]):
            return benchmarks.main()
    finally:
        torch.set_num_threads(threads)


def run_of(command: str, path) -> dict:
    """What a command writes; its rows have two samples or a reason."""
    words = shlex.split(f"{command} {QUICK} --output {shlex.quote(str(path))}")
    assert run_command(words) == 0
    run = json.loads(path.read_text())
    assert run["benchmark"] == words[0] and run["complete"]
    assert run["command"] == f"python -m benchmarks {shlex.join(words)}"
    assert run["environment"]["torch"] == torch.__version__
    for row in run["measurements"]:
        assert "skipped" in row or len(row["seconds"]) == 2
    return run


def rows_of(run: dict, *names: str) -> dict[tuple, dict]:
    """The rows by these of their fields, which tell them apart."""
    found = {tuple(row[name] for name in names): row for row in run["measurements"]}
    assert len(found) == len(run["measurements"])
    return found
