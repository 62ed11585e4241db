"""Runs at once, one behind the other, failing, interrupted and gone on with."""

import errno
import fcntl
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fairseq_transnormer.reproduce import command_line
from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.runs import progress
from fairseq_transnormer.reproduce.runs.devices import Slot, chosen_gpus, make_slots
from fairseq_transnormer.reproduce.runs.plans import Step, merged
from fairseq_transnormer.reproduce.runs.processes import LoggedProcess
from fairseq_transnormer.reproduce.runs.progress import Progress
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from fairseq_transnormer.reproduce.runs.scheduling import run_all
from tests.messages import assert_names, lines_naming, refuses

from .stand_in import command, plan, prepared


def run(folders, slots=None, interval=60):
    told = []
    ended = run_all(
        folders, slots or [Slot()], Progress(folders, interval, told.append)
    )
    return ended, told


def test_all_are_run_and_a_failed_one_stops_no_other(tmp_path):
    folders = [
        prepared(tmp_path, "first"),
        prepared(tmp_path, "broken", fail_at=2),
        prepared(tmp_path, "last"),
    ]
    ended, told = run(folders)
    assert ended == {
        "finished": [folders[0], folders[2]],
        "interrupted": [],
        "failed": [folders[1]],
    }
    assert [folder.status()["state"] for folder in folders] == [
        "finished", "failed", "finished",
    ]  # fmt: skip
    assert any("the disk is full" in line for line in told)
    assert lines_naming("\n".join(told), "failed", folders[1].path, "exit code 1")
    attempt = folders[1].status()["attempts"][0]
    assert attempt["exit_code"] == 1 and attempt["peak_rss_bytes"] > 1e6
    assert attempt["versions"]["torch"] and attempt["commit"]


def test_a_failed_run_resumes_from_its_last_update(tmp_path):
    folder = prepared(tmp_path, "run", updates=4, fail_at=2)
    run([folder])
    folder.prepare(plan("run", updates=4))
    ended, _ = run([folder])
    assert ended["finished"] == [folder]
    log = (folder.path / "train.log").read_text()
    assert log.count("train_inner") == 4 and log.count('"num_updates": "2"') == 1
    assert len(folder.status()["attempts"]) == 2


def test_two_slots_run_two_at_once_on_their_gpus(tmp_path):
    folders = [prepared(tmp_path, name, updates=2, seconds=0.2) for name in "abcd"]
    run(folders, [Slot(("0",)), Slot(("1", "2"))])
    spans = [
        (attempt["started"], attempt["ended"])
        for folder in folders
        for attempt in folder.status()["attempts"]
    ]
    at_once = max(sum(a <= start < b for a, b in spans) for start, _ in spans)
    assert at_once == 2
    devices = {(folder.path / "devices").read_text().split()[0] for folder in folders}
    assert devices == {"0", "1,2"}


def test_steps_run_in_order_and_after_a_failed_one_nothing(tmp_path):
    mark = [sys.executable, "-c", "open('after', 'a').write('x')"]
    steps = [Step("train", command(fail_at=3)), Step("scores", mark)]
    folder = prepared(tmp_path, "run", steps=steps)
    run([folder])
    assert not (folder.path / "after").exists()
    run([folder])  # the training is complete when it resumes
    assert (folder.path / "after").read_text() == "x"
    assert folder.status()["steps_done"] == ["train", "scores"]
    run([folder])
    assert (folder.path / "after").read_text() == "x"


def test_a_command_that_is_not_there_is_a_failed_run(tmp_path):
    """As on another machine; the log of earlier attempts stays."""
    folder = prepared(tmp_path, "run", steps=[Step("train", ["/no/such/command"])])
    log = folder.path / "train.log"
    log.write_text("what was measured\n")
    ended, told = run([folder])
    assert ended["failed"] == [folder] and "No such file" in "".join(told)
    assert log.read_text().startswith("what was measured\n")
    assert "No such file" in log.read_text()


@pytest.mark.parametrize("state", ["running", "finished"])
def test_a_status_that_cannot_be_written_is_that_runs_failure(
    tmp_path, monkeypatch, state
):
    write = RunFolder.write_status

    def full(folder, status):
        if folder.path.name == "broken" and status["state"] == state:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(folder, status)

    folders = [prepared(tmp_path, name) for name in ("broken", "other")]
    monkeypatch.setattr(RunFolder, "write_status", full)
    ended, told = run(folders)
    assert ended["failed"] == folders[:1] and ended["finished"] == folders[1:]
    (line,) = [line for line in told if "No space left" in line]
    assert_names(line, "failed", folders[0].path)
    assert not folders[0].is_locked() and not _alive(folders[0])


def test_a_damaged_file_of_a_needed_run_stops_no_other(tmp_path):
    needed, other = prepared(tmp_path, "needed"), prepared(tmp_path, "other")
    behind = plan("behind")
    behind.needs = ("needed",)
    folder = RunFolder(tmp_path / "behind")
    folder.prepare(behind)
    (needed.path / "status.json").write_text("{")
    ended, told = run([folder, other])
    assert ended["failed"] == [folder] and ended["finished"] == [other]
    assert lines_naming("\n".join(told), "failed", needed.path / "status.json")


def test_an_error_of_the_runner_stops_what_runs(tmp_path):
    """As of a full disk that its own output goes to."""
    folders = [prepared(tmp_path, "quick"), prepared(tmp_path, "long", hang_at=1)]
    told = []

    def tell(line):
        told.append(line)
        if line.startswith("finished"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with refuses(ReproduceError, "No space left", 1, alone=True):
        run_all(folders, [Slot(), Slot()], Progress(folders, 60, tell))
    assert [f.status()["state"] for f in folders] == ["finished", "interrupted"]
    assert not _alive(folders[1])


def test_runs_that_cannot_be_prepared_are_one_line(tmp_path, monkeypatch):
    def full(folder, plan):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(RunFolder, "prepare", full)
    monkeypatch.setattr(command_line, "check_checkpoints", lambda *given: None)
    given = SimpleNamespace(runs_dir=tmp_path, dry_run=False)
    with refuses(ReproduceError, tmp_path / "run", "Read-only", "--runs-dir"):
        command_line._prepared([plan("run")], given)


def test_steps_of_several_tables_come_together():
    one, two = plan("run"), plan("run")
    two.steps.append(Step("scores", ["true"]))
    (plan_of_both,) = merged([one, two])
    assert [step.name for step in plan_of_both.steps] == ["train", "scores"]


def test_progress_tells_what_is_left_and_no_more_often_than_asked(
    tmp_path, monkeypatch
):
    now, told, folder = [0.0], [], prepared(tmp_path, "run", updates=4)
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(progress, "time", clock)
    progress_of_all = Progress([folder], 10, told.append)
    for now[0], updates in ((9, 1), (10, 1), (19, 2), (21, 2)):
        log = f'{{"num_updates": "{updates}"}}\n'
        (folder.path / "train.log").write_text(log)
        progress_of_all.line([folder], 0)
    for line, *parts in zip(
        told,
        ("0:00:10", "0:00:21"),
        ("1/4", "2/4"),
        ("0:00:30", "0:00:21"),
        strict=True,
    ):
        assert_names(line, "0/1 runs", *parts)
    monkeypatch.undo()
    assert len(run([prepared(tmp_path, "quiet")])[1]) == 2  # started, finished


@pytest.fixture
def interruptible():
    """Tests that a shell put into the background, or nohup, would ignore signals."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handlers[number]) for number in handlers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_stops_the_children_and_marks_their_runs(tmp_path, number, capsys):
    folder = prepared(tmp_path, "run", updates=5, hang_at=2)
    seen = []

    def interrupt():
        state = folder.path / "checkpoints" / "update"
        while not (state.exists() and state.read_text() == "2"):
            time.sleep(0.05)
        seen.append(folder.status()["state"])
        with refuses(ReproduceError, folder.path, "another runner"):
            folder.lock().__enter__()
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt, daemon=True).start()
    assert main(["execute", str(folder.path), "--gpus", "none"]) == 130
    assert seen == ["running"]
    assert "interrupted: stopping 1 runs" in capsys.readouterr().out
    status = folder.status()
    assert status["state"] == "interrupted"
    assert status["attempts"][0]["exit_code"] == -signal.SIGTERM
    assert not _alive(folder)
    folder.prepare(plan("run", updates=5))
    run([folder])
    assert folder.status()["state"] == "finished"


@pytest.mark.usefixtures("interruptible")
def test_a_terminal_that_hangs_up_again_does_not_end_the_stop(tmp_path):
    class HungUpWhileStopped(LoggedProcess):
        def stop(self):
            os.kill(os.getpid(), signal.SIGHUP)
            super().stop()

    folders = [prepared(tmp_path, name, updates=5, hang_at=2) for name in "ab"]
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGHUP)).start()
    with pytest.raises(KeyboardInterrupt):
        run_all(
            folders,
            [Slot(), Slot()],
            Progress(folders, 60, lambda line: None),
            HungUpWhileStopped,
        )
    assert [each.status()["state"] for each in folders] == ["interrupted"] * 2
    assert not any(_alive(each) for each in folders)


def test_a_runner_with_nohup_outlives_its_terminal(tmp_path):
    folder = prepared(tmp_path, "run", updates=3, seconds=0.2)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    hangup = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGHUP))
    try:
        hangup.start()
        assert run([folder])[0]["finished"] == [folder]
    finally:
        hangup.join()
        signal.signal(signal.SIGHUP, before)


def _alive(folder: RunFolder) -> bool:
    """Whether any process works in the folder."""
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if os.readlink(link) == str(folder.path):
                return True
        except OSError:
            continue
    return False


def test_a_runner_that_was_killed_leaves_an_interrupted_run(tmp_path):
    folder = prepared(tmp_path, "run")
    folder.write_status({"state": "running", "steps_done": [], "attempts": []})
    assert folder.status()["state"] == "interrupted"
    with folder.lock():
        assert folder.status()["state"] == "running"


def test_who_asks_for_a_runner_writes_nothing(tmp_path):
    """Runs may lie in a place that can only be read."""
    folder = prepared(tmp_path, "run")
    lock = folder.path / ".lock"
    assert not folder.is_locked() and not lock.exists()
    lock.write_text("x")
    assert not folder.is_locked() and lock.read_text() == "x"


def test_who_asks_for_a_runner_keeps_none_out(tmp_path):
    """As a Slurm job that starts while its submitter looks at the folder."""
    folder = prepared(tmp_path, "run")
    with folder.lock():
        pass
    with (folder.path / ".lock").open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.05, fcntl.flock, (asking, fcntl.LOCK_UN)).start()
        with folder.lock():
            assert folder.is_locked()
    with folder.lock(), refuses(ReproduceError, folder.path), folder.lock():
        pass


def test_slots(monkeypatch):
    assert [slot.gpus for slot in make_slots([*"012"], 1, None)] == [
        ("0",),
        ("1",),
        ("2",),
    ]
    assert [slot.gpus for slot in make_slots([*"0123"], 2, 4)] == [
        ("0", "1"), ("2", "3"), ("0", "1"), ("2", "3"),
    ]  # fmt: skip
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    slots = make_slots([], 1, 4)
    assert len(slots) == 4 and slots[0].environment()["OMP_NUM_THREADS"] == "2"
    assert slots[0].environment()["CUDA_VISIBLE_DEVICES"] == ""
    with refuses(ReproduceError, "8 GPUs", 2):
        make_slots(["0", "1"], 8, None)


def test_a_run_is_told_to_be_where_it_is(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    (slot,) = make_slots([], 1, None)
    assert slot.environment()["OMP_NUM_THREADS"] == "3" and "3 threads" in str(slot)
    # of a shared machine some GPUs, by their UUIDs
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f6a, MIG-77")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    (first, second) = make_slots(chosen_gpus("auto"), 1, None)
    assert first.environment()["CUDA_VISIBLE_DEVICES"] == "GPU-8f6a"
    assert second.gpus == ("MIG-77",) and "MIG-77" in str(second)
    assert chosen_gpus("MIG-77") == ["MIG-77"]
    with refuses(ReproduceError, "--gpus 0", "GPU-8f6a"):
        chosen_gpus("0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert chosen_gpus("7") == ["7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert chosen_gpus("auto") == ["0", "1"]


def test_a_run_that_stops_by_itself_is_gone_on_with(tmp_path, capsys):
    """Exit code 75: training was sent a signal that the runner was not."""
    steps = [Step("train", [sys.executable, "-c", "raise SystemExit(75)"])]
    folder = prepared(tmp_path, "run", steps=steps)
    assert main(["execute", str(folder.path), "--gpus", "none"]) == 75
    assert folder.status()["state"] == "interrupted"
    assert "interrupted" in capsys.readouterr().out


def test_a_run_that_is_killed_says_so_and_how_to_resume(tmp_path, capsys, monkeypatch):
    kills = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    folder = RunFolder(tmp_path / "run")
    folder.prepare(plan("run", [Step("train", kills)]))
    _, told = run([folder])
    assert lines_naming("\n".join(told), "failed", folder.path, "signal 9")
    monkeypatch.setattr(command_line, "_prepared", lambda *_: [folder])
    words = ["run", "table1", "--preset", "smoke", "--gpus", "none", "--prepare"]
    monkeypatch.setattr(command_line.corpora, "require", lambda *_: None)
    monkeypatch.setattr(command_line, "plan_all", lambda *_: [])
    assert main(words) == 1
    said = capsys.readouterr().out
    assert lines_naming(said, "to resume", f"reproduce {' '.join(words)}")


def test_a_table_is_told_before_its_rows_are_composed(tmp_path, monkeypatch):
    """Into a pipe, too."""
    path = tmp_path / "stdout"
    seen = []

    def composed(*arguments):
        seen.append(path.read_text())
        raise ReproduceError("enough")

    monkeypatch.setattr(command_line, "seeds_of", composed)
    with path.open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["status", "table4"]) == 2
    assert seen[0].startswith("table4: ")
