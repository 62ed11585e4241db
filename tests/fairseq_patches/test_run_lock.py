"""One run a folder: the second is told of the first; a dead one keeps nobody out."""

import errno
import multiprocessing
import os
import signal
import socket
import time

import pytest

from fairseq_transnormer.checkpoints import files
from fairseq_transnormer.fairseq_patches import run_lock
from tests.messages import assert_names, refuses

from .accidents import WAITING
from .trainings import line_with

FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def released():
    yield
    run_lock.release()


@pytest.fixture
def holder(tmp_path):
    """A process that holds the folder."""
    process = FORK.Process(target=hold_for_long, args=(tmp_path,), daemon=True)
    process.start()
    wait_until((tmp_path / "held").exists)
    yield process
    process.kill()


def hold_for_long(folder):
    run_lock.hold(folder)
    (folder / "held").touch()
    time.sleep(100)


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_runs_in_one_folder(training, goes_on, tell):
    first, second = training(num_workers=1), training(num_workers=1)
    first.start(("wait_before", 5, "/no/gate"))
    first.wait_for(WAITING)
    second.save_dir = first.save_dir.with_name("checkpoints-2")  # logs of its own
    second.save_dir.symlink_to(first.save_dir)
    codes = second.run()
    assert codes == [1] and not second.losses(), second.text()
    pid = first.processes[0].pid
    holder = ("another run", pid, socket.gethostname())
    said = line_with(second.text(), "checkpoint.save_dir", *holder)
    tell("a second run in the same folder", codes, 4, 3, said.replace(str(pid), "PID"))
    first.processes[0].kill()  # not those that load its data
    assert first.wait() == [-signal.SIGKILL]
    assert goes_on(second) == 3


def test_who_holds_it_is_named(holder, tmp_path):
    with refuses(ValueError, tmp_path, f"pid {holder.pid}", socket.gethostname()):
        run_lock.hold(tmp_path)


def test_a_killed_holder_keeps_nobody_out(holder, tmp_path):
    holder.kill()
    holder.join()
    assert (tmp_path / run_lock.NAME).exists()
    assert run_lock.hold(tmp_path)
    assert str(os.getpid()) in (tmp_path / run_lock.NAME).read_text()


def test_a_child_does_not_keep_it(tmp_path):
    """Data loaders may outlive a trainer that was killed by seconds."""
    assert run_lock.hold(tmp_path)
    child = FORK.Process(target=time.sleep, args=(100,), daemon=True)
    child.start()
    run_lock.release()
    assert not (tmp_path / run_lock.NAME).exists()
    assert run_lock.hold(tmp_path)
    child.kill()


def test_the_next_run_of_a_process_has_its_own_folder(tmp_path):
    """As in a sweep of Hydra."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        assert run_lock.hold(folder) and run_lock.hold(folder)
    assert not (folders[0] / run_lock.NAME).exists()


def test_a_file_that_its_holder_has_just_removed(tmp_path, monkeypatch):
    lock, calls = run_lock.fcntl.flock, []

    def removed_meanwhile(descriptor, how):
        lock(descriptor, how)
        if not calls:
            (tmp_path / run_lock.NAME).unlink()
        calls.append(descriptor)

    monkeypatch.setattr(run_lock.fcntl, "flock", removed_meanwhile)
    assert run_lock.hold(tmp_path) and len(calls) == 2
    assert (tmp_path / run_lock.NAME).exists()


def test_where_there_are_no_locks_training_starts(tmp_path, monkeypatch, caplog):
    def unknown(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(run_lock.fcntl, "flock", unknown)
    assert not run_lock.hold(tmp_path)
    assert_names(caplog.text, run_lock.NAME, "No locks available")


def test_a_folder_that_cannot_be_written_to_is_fairseqs_to_tell_of(tmp_path):
    assert not run_lock.hold(tmp_path / "missing")


def test_only_parts_of_dead_writers_are_removed(tmp_path):
    part = tmp_path / f"checkpoint_last.pt.{'0a' * 16}.tmp"
    link = tmp_path / f"checkpoint_best.pt.{'0b' * 16}.tmp"
    others = ["checkpoint_last.pt.tmp", "notes.tmp", "checkpoint_mine.tmp"]
    link.symlink_to(tmp_path / "notes.tmp")
    for name in (part.name, *others):
        (tmp_path / name).touch()
    files.remove_parts(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {link.name, *others}
