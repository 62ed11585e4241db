"""One run a folder: the second is told of the first; a dead one keeps nobody out."""

import errno
import multiprocessing
import os
import signal
import socket
import time

import pytest

from fairseq_transnormer.checkpoints import files
from fairseq_transnormer.training.folder_lock import HOLDER, LOCK, FolderLock
from tests.forked_trainings import wait_until
from tests.messages import assert_names

from .accidents import WAITING
from .trainings import line_with

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def holder(tmp_path):
    """A process that holds the folder."""
    process = FORK.Process(target=hold_for_long, args=(tmp_path,), daemon=True)
    process.start()
    wait_until((tmp_path / "held").exists, seconds=30)
    yield process
    process.kill()


def hold_for_long(folder):
    lock = FolderLock(folder)
    lock.hold()
    (folder / "held").touch()
    time.sleep(100)


def test_two_runs_in_one_folder(training, goes_on):
    first, second = training(num_workers=1), training(num_workers=1)
    first.start(("wait_before", 5, "/no/gate"))
    first.wait_for(WAITING)
    second.save_dir = first.save_dir.with_name("checkpoints-2")  # logs of its own
    second.save_dir.symlink_to(first.save_dir)
    codes = second.run()
    assert codes == [1] and not second.losses(), second.text()
    pid = first.processes[0].pid
    holder = ("another run", pid, socket.gethostname())
    line_with(second.text(), "checkpoint.save_dir", *holder)
    first.processes[0].kill()  # not those that load its data
    assert first.wait() == [-signal.SIGKILL]
    assert goes_on(second) == 3


def test_a_killed_holder_keeps_nobody_out(holder, tmp_path):
    holder.kill()
    holder.join()
    assert (tmp_path / HOLDER).exists()
    lock = FolderLock(tmp_path)
    assert lock.hold()
    assert str(os.getpid()) in (tmp_path / HOLDER).read_text()
    lock.release()
    assert not (tmp_path / HOLDER).exists()


def test_a_child_does_not_keep_it(tmp_path):
    """Data loaders may outlive a trainer that was killed by seconds."""
    lock = FolderLock(tmp_path)
    assert lock.hold()
    child = FORK.Process(target=time.sleep, args=(100,), daemon=True)
    child.start()
    lock.release()
    again = FolderLock(tmp_path)
    assert again.hold()
    again.release()
    child.kill()


def test_where_there_are_no_locks_training_starts(tmp_path, monkeypatch, caplog):
    def unknown(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", unknown)
    assert not FolderLock(tmp_path).hold()
    assert_names(caplog.text, LOCK, "No locks available")


def test_only_parts_of_dead_writers_are_removed(tmp_path):
    part = tmp_path / f"checkpoint_last.pt.{'0a' * 16}.tmp"
    link = tmp_path / f"checkpoint_best.pt.{'0b' * 16}.tmp"
    others = ["checkpoint_last.pt.tmp", "notes.tmp", "checkpoint_mine.tmp"]
    link.symlink_to(tmp_path / "notes.tmp")
    for name in (part.name, *others):
        (tmp_path / name).touch()
    files.remove_parts(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {link.name, *others}
