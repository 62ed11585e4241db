"""The folder of a run: its state, and what is refused before anything is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.reproduce.data import Data
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.runs import STATES, Run, RunFolder
from tests.messages import refuses

from .made import CONFIGURATION, validations, write_run

BEGAN = '{"kind": "attempt", "started": 1.0}'
ENDED = '{{"kind": "attempt_end", "seconds": 2.0, "exit_code": {}}}'
SUBMITTED = '{"kind": "submitted", "job": "7"}'


def a_run(name="tiny/a/seed1", width=8, **fields):
    cfg = CONFIGURATION | {"model": {"_name": "x", "width": width}}
    usual = {"data": Data(Path("/data")), "seed": 1, "updates": 3}
    usual |= {"command": (sys.executable, "-c", "")}
    return Run(name=name, configuration=cfg, **usual | fields)


@pytest.fixture
def folder(tmp_path):
    """The folder of ``a_run``, prepared."""
    found = RunFolder(tmp_path / "tiny/a/seed1")
    found.prepare(a_run())
    return found


def with_checkpoint(folder):
    (folder.path / "checkpoints").mkdir()
    (folder.path / "checkpoints/checkpoint_last.pt").touch()


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ([], "new"),
        (["a line of a log"], "new"),
        ([SUBMITTED], "submitted"),
        ([BEGAN], "interrupted"),  # killed, without an end
        ([BEGAN, ENDED.format(75)], "interrupted"),
        ([BEGAN, ENDED.format(1)], "failed"),
        ([BEGAN, ENDED.format(-9)], "failed"),
        ([BEGAN, ENDED.format(0)], "finished"),
        ([BEGAN, ENDED.format(0), BEGAN], "interrupted"),
        ([BEGAN, ENDED.format(75), BEGAN, ENDED.format(0)], "finished"),
        ([BEGAN, ENDED.format(75), SUBMITTED], "submitted"),
        # a job may start before it is noted
        ([BEGAN, SUBMITTED, ENDED.format(0)], "finished"),
        # half a line, of a process that was killed or a disk that was full
        ([BEGAN, ENDED.format(0)[:30]], "interrupted"),
        ([BEGAN[:20], BEGAN, ENDED.format(0)], "finished"),
        ([ENDED.format(0)[:-9] + BEGAN, BEGAN, ENDED.format(1)], "failed"),
    ],
)
def test_the_state_follows_from_the_log(folder, lines, state):
    (folder.path / "train.log").write_text("".join(f"\n{line}\n" for line in lines))
    assert RunFolder(folder.path).state == state in STATES
    assert RunFolder(folder.path).is_finished == (state == "finished")


def test_an_end_without_a_beginning_is_no_attempt(folder):
    (folder.path / "train.log").write_text(ENDED.format(0) + "\n")
    assert folder.state == "new" and folder.attempts == []


def test_a_line_after_half_a_line_counts(folder):
    (folder.path / "train.log").write_bytes(BEGAN.encode() + b"\nhalf \xff of")
    folder.append("attempt_end", seconds=1.0, exit_code=0)
    assert folder.state == "finished"
    assert folder.attempts[0]["seconds"] == 1.0


LOCKING = """
import sys, time
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_what_another_process_holds_is_running(folder):
    (folder.path / "train.log").write_text(BEGAN + "\n")
    lock = str(folder.path / ".lock")
    words = [sys.executable, "-c", LOCKING, lock]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout.readline() == b"held\n"
            assert RunFolder(folder.path).state == "running"
            with refuses(ReproduceError, folder.path), folder.lock():
                pass
            with refuses(ReproduceError, folder.path, "model.width", 8, 9):
                folder.check(a_run(width=9))
        finally:
            other.kill()
    assert RunFolder(folder.path).state == "interrupted"


def test_another_runs_results_are_refused_and_kept(folder):
    with_checkpoint(folder)
    (folder.path / "train.log").write_text("of width 8")
    before = {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}
    assert folder.check(a_run())
    for other, *parts in (
        (a_run(width=9), "model.width", 8, 9),
        (a_run(start="../x.pt"), "weights"),
        (a_run(name="tiny/b/seed1"), "name", "tiny/b/seed1"),
    ):
        for ask in (folder.check, folder.prepare):
            with refuses(ReproduceError, folder.path, *parts, alone=True):
                ask(other)
    facts = json.loads((folder.path / "run.json").read_text())
    facts["data_fingerprint"] = "d2"
    (folder.path / "run.json").write_text(json.dumps(facts))
    with refuses(ReproduceError, folder.path, "data", "d2", alone=True):
        RunFolder(folder.path).check(a_run())
    (folder.path / "run.json").write_bytes(before[folder.path / "run.json"])
    after = {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}
    assert after == before
    # what is merely finished, without a checkpoint, is a result, too
    (folder.path / "checkpoints/checkpoint_last.pt").unlink()
    (folder.path / "train.log").write_text(f"{BEGAN}\n{ENDED.format(0)}\n")
    with refuses(ReproduceError, "model.width"):
        RunFolder(folder.path).check(a_run(width=9))


def test_a_run_without_progress_is_prepared_anew(folder):
    log = folder.path / "train.log"
    for width in (16, 32):
        log.write_text(f"before {width}\n{BEGAN}\n{ENDED.format(1)}\n")
        folder.prepare(a_run(width=width))
        assert folder.state == "new" and not log.exists()
        assert RunFolder(folder.path).configuration["model"]["width"] == width
    kept = {path.read_text()[:9] for path in folder.path.glob("train.log.*")}
    assert kept == {"before 16", "before 32"}
    folder.prepare(a_run(width=32))
    assert len(list(folder.path.glob("train.log.*"))) == 2


@pytest.mark.parametrize("name", ["run.json", "config.yaml"])
def test_a_damaged_folder(folder, name):
    (folder.path / name).write_text("{")
    assert not RunFolder(folder.path).check(a_run())  # nothing is lost
    with_checkpoint(folder)
    with refuses(ReproduceError, folder.path, "damaged"):
        RunFolder(folder.path).check(a_run())
    (folder.path / "run.json").unlink()
    with refuses(ReproduceError, folder.path, "checkpoints", "run.json"):
        RunFolder(folder.path).check(a_run())


def checkpoint(path, number):
    torch.save({"model": {"w": torch.full((2,), float(number))}}, path)
    return weights_fingerprint(path)


def test_weights_that_changed_since_the_start_are_refused(tmp_path):
    one = checkpoint(tmp_path / "one.pt", 1)
    path = tmp_path / "runs/tiny/a/seed1"
    start = os.path.relpath(tmp_path / "one.pt", path)
    log = validations([5.0])
    found = RunFolder(write_run(path, log, attempts=[{"weights": one}], start=start))
    assert found.weights == found.weights_at_start() == one
    assert found.other_weights() == ""
    two = checkpoint(tmp_path / "one.pt", 2)
    assert len({one, two}) == 2
    with refuses(ReproduceError, found.path, one, two, alone=True):
        found.weights_at_start()
    assert one in found.other_weights() and two in found.other_weights()
    # those that were there at any of its attempts
    (tmp_path / "one.pt").unlink()
    assert found.other_weights() == ""
    with refuses(ReproduceError, found.path, "one.pt"):
        found.weights_at_start()
    assert RunFolder(write_run(path)).weights_at_start() is None


def test_progress_is_read_from_the_log(tmp_path):
    path = write_run(tmp_path / "tiny/a/seed1", validations([9.0, 7.5]))
    found = RunFolder(path)
    assert found.updates_done == 2 and found.last_validation == "valid_ppl 7.5"
    assert (found.facts["name"], found.job) == ("tiny/a/seed1", None)


STATUS = """
import sys
from fairseq_transnormer.reproduce.commands import main
code = main(["status", "--preset", "tiny", "--runs-dir", sys.argv[1]])
print({"torch", "fairseq", "omegaconf"} & {*sys.modules})
sys.exit(code)
"""


def test_status_reads_folders_without_torch(tmp_path):
    for name, code in (("a", 0), ("b", 1)):
        write_run(tmp_path / f"tiny/{name}/seed1", validations([5.0]), exit_code=code)
    write_run(tmp_path / "other/a/seed1")
    (tmp_path / "tiny/c/seed1").mkdir(parents=True)
    (tmp_path / "tiny/c/seed1/run.json").write_text("{")
    words = [sys.executable, "-c", STATUS, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *lines, modules = done.stdout.splitlines()
    assert modules == "set()"
    shown = [(line.split()[0], line.split()[-3:]) for line in lines]
    assert [state for state, _ in shown] == ["finished", "failed", "unreadable"]
    assert shown[0][1] == ["tiny/a/seed1", "valid_ppl", "5.0"]
