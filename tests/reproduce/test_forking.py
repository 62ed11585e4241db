"""Runs as forks of the runner, which has imported fairseq."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.runs.devices import Slot
from fairseq_transnormer.reproduce.runs.forking import ForkedProcess, Forks
from fairseq_transnormer.reproduce.runs.plans import Step
from fairseq_transnormer.reproduce.runs.progress import Progress
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from fairseq_transnormer.reproduce.runs.scheduling import run_all
from tests.messages import assert_names

from .stand_in import plan


def prepared(folder, name, end="0", data="data") -> RunFolder:
    run = RunFolder(folder / name)
    module = [sys.executable, "-m", "tests.reproduce.stand_in_module", end]
    made = plan(name, [Step("train", module)])
    made.data = data
    run.prepare(made)
    return run


def run(folders, launch, slots=None):
    progress = Progress(folders, 60, lambda line: None)
    return run_all(folders, slots or [Slot()], progress, launch)


def said(folder: RunFolder) -> dict:
    """What the last attempt said of itself, whatever was warned of before."""
    lines = (folder.path / "train.log").read_text().splitlines()
    return json.loads([line for line in lines if line.startswith("{")][-1])


def attempt(folder: RunFolder) -> dict:
    return folder.status()["attempts"][-1]


def test_the_first_of_each_command_on_each_data_is_not_forked(tmp_path):
    folders = [
        prepared(tmp_path, name, data=data)
        for name, data in (("a", "one"), ("b", "one"), ("c", "two"), ("d", "two"))
    ]
    ended = run(folders, Forks(), [Slot(threads=2)])
    assert ended["finished"] == folders
    assert [said(folder)["forked"] for folder in folders] == [False, True, False, True]
    usual, forked = (said(folder) for folder in folders[:2])
    # /proc/self/fd, 0, 1, 2: nothing of the runner's, which holds the run's lock
    assert forked["files"] == 4
    for folder, found in zip(folders, (usual, forked), strict=False):
        assert found["folder"] == str(folder.path)
        assert found["leads"] and found["name"] == "__main__" and found["device"] == ""
        assert "to the other one" in (folder.path / "train.log").read_text()
        assert attempt(folder)["peak_rss_bytes"] > 1e8
    if "OMP_NUM_THREADS" not in os.environ:
        assert usual["threads"] == forked["threads"] == 2


@pytest.mark.parametrize(
    ("end", "code", "state", "text"),
    [
        ("0", 0, "finished", ""),
        ("75", 75, "interrupted", ""),
        ("2", 2, "failed", ""),
        ("says", 1, "failed", "the disk is full"),
        ("raises", 1, "failed", "RuntimeError: no such thing"),
    ],
)
def test_a_fork_ends_as_the_command_does(tmp_path, end, code, state, text):
    folder = prepared(tmp_path, "run", end)
    assert run([folder], ForkedProcess)[state] == [folder]
    assert attempt(folder)["exit_code"] == code
    log = (folder.path / "train.log").read_text()
    assert text in log and "closed" in log


def test_an_interrupt_ends_the_forks_as_well(tmp_path):
    folders = [prepared(tmp_path, name, "hangs") for name in "ab"]

    def interrupt():
        while not all((folder.path / "ready").exists() for folder in folders):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run(folders, ForkedProcess, [Slot(), Slot()])
    for folder in folders:
        assert folder.status()["state"] == "interrupted"
        assert attempt(folder)["exit_code"] == -signal.SIGTERM


def test_a_signal_while_forking_is_not_lost(tmp_path):
    """Python drops what is raised in its functions at forks, as logging has one."""
    folder, over, sent = prepared(tmp_path, "run", "hangs"), threading.Event(), []
    beside = threading.Thread(target=over.wait, daemon=True)
    beside.start()

    def signalled():
        if not (over.is_set() or sent):
            sent.append(signal.SIGTERM)
            # the runner's own thread forks with its signals blocked
            signal.pthread_kill(beside.ident, signal.SIGTERM)
            time.sleep(0.05)

    os.register_at_fork(after_in_parent=signalled)
    try:
        with pytest.raises(KeyboardInterrupt):
            run([folder], ForkedProcess)
    finally:
        over.set()
    assert sent and folder.status()["state"] == "interrupted"


@pytest.mark.parametrize("variable", ["2", None])
def test_runs_of_several_threads_are_not_forked(variable, monkeypatch, capsys):
    """With OpenMP's threads in the runner such a fork waits for ever."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda of: range(2))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    place = ["--gpus", "none", "--fork"]
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
        place += ["--jobs", "2"]
    assert main(["run", "table11", "--preset", "smoke", *place]) == 2
    assert_names(capsys.readouterr().err, "--fork", "2 threads", "OMP_NUM_THREADS=1")


@pytest.mark.parametrize("place", [["--gpus", "0"], ["--slurm"]])
def test_forks_are_for_this_machines_cpu(place, monkeypatch, capsys):
    from fairseq_transnormer.reproduce import command_line

    monkeypatch.setattr(command_line, "chosen_gpus", lambda wanted: ["0"])
    monkeypatch.setattr(command_line.slurm, "require_slurm", lambda: None)
    assert main(["run", "table11", "--preset", "smoke", "--fork", *place]) == 2
    assert_names(capsys.readouterr().err, "--fork", "--gpus none", "--slurm")
