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
    usual = {"data": Data(Path("/data")), "seed": 1, "updates": 3, "command": ("x",)}
    return Run(name=name, configuration=cfg, **usual | fields)


@pytest.fixture
def folder(tmp_path):
    """The folder of ``a_run``, prepared."""
    found = RunFolder(tmp_path / "tiny/a/seed1")
    found.prepare(a_run())
    return found


def contents(folder):
    return {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("state", "lines"),
    [
        ("new", ["a line of a log"]),
        ("submitted", [SUBMITTED]),
        ("interrupted", [BEGAN]),  # killed, without an end
        ("interrupted", [BEGAN, ENDED.format(75)]),
        ("interrupted", [BEGAN, ENDED.format(-15)]),
        ("failed", [BEGAN, ENDED.format(1)]),
        ("failed", [BEGAN, ENDED.format(-9)]),
        ("finished", [BEGAN, ENDED.format(0)]),
        ("interrupted", [BEGAN, ENDED.format(0), BEGAN]),
        ("finished", [BEGAN, ENDED.format(75), BEGAN, ENDED.format(0)]),
        ("submitted", [BEGAN, ENDED.format(75), SUBMITTED]),
        ("finished", [BEGAN, SUBMITTED, ENDED.format(0)]),  # a job started at once
        # half a line, of a process that was killed or a disk that was full
        ("interrupted", [BEGAN, ENDED.format(0)[:30]]),
        ("finished", [BEGAN[:20], BEGAN, ENDED.format(0)]),
        ("failed", [ENDED.format(0)[:-9] + BEGAN, BEGAN, ENDED.format(1)]),
        ("new", [ENDED.format(0)]),  # whose beginning is lost
    ],
)
def test_the_state_follows_from_the_log(folder, lines, state):
    (folder.path / "train.log").write_text("".join(f"\n{line}\n" for line in lines))
    assert folder.state == state in STATES
    assert folder.is_finished == (state == "finished")
    with (folder.path / "train.log").open("ab") as log:
        log.write(b"\n" + BEGAN.encode() + b"\nhalf \xff of")
    folder.append("attempt_end", seconds=1.5, exit_code=0)
    assert folder.is_finished and folder.attempts[-1]["seconds"] == 1.5


LOCKING = """
import sys, time
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_what_another_process_holds_is_running(folder):
    words = [sys.executable, "-c", LOCKING, str(folder.path / ".lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout.readline() == b"held\n"
            assert folder.state == "running"
            with refuses(ReproduceError, folder.path), folder.lock():
                pass
            with refuses(ReproduceError, folder.path, "model.width", 8, 9):
                folder.check(a_run(width=9))
        finally:
            other.kill()
    assert folder.state == "new"


def test_another_runs_results_are_refused_and_kept(folder):
    checkpoint = folder.path / "checkpoints/checkpoint_last.pt"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    (folder.path / "train.log").write_text("of width 8")
    before = contents(folder)
    assert folder.check(a_run())
    folder.prepare(a_run())
    for other, *parts in (
        (a_run(width=9), "model.width", 8, 9),
        (a_run(start="../x.pt"), "weights"),
        (a_run(name="tiny/b/seed1"), "name", "tiny/b/seed1"),
    ):
        for ask in (folder.check, folder.prepare):
            with refuses(ReproduceError, folder.path, *parts, alone=True):
                ask(other)
    assert contents(folder) == before
    path = folder.path / "run.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"data_fingerprint": "d2"})
    )
    with refuses(ReproduceError, folder.path, "data", "d2", alone=True):
        RunFolder(folder.path).check(a_run())
    path.write_bytes(before[path])
    # what has finished is a result without a checkpoint, too
    checkpoint.unlink()
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


@pytest.mark.parametrize("name", ["run.json", "config.yaml"])
def test_a_damaged_folder(folder, name):
    (folder.path / name).write_text("{")
    assert not RunFolder(folder.path).check(a_run())  # nothing is lost
    (folder.path / "checkpoints").mkdir()
    (folder.path / "checkpoints/checkpoint_last.pt").touch()
    with refuses(ReproduceError, folder.path, "damaged"):
        RunFolder(folder.path).check(a_run())
    (folder.path / "run.json").unlink()
    with refuses(ReproduceError, folder.path, "checkpoints", "run.json"):
        RunFolder(folder.path).check(a_run())


def test_weights_that_changed_since_the_start_are_refused(tmp_path):
    start, path = tmp_path / "one.pt", tmp_path / "runs/tiny/a/seed1"

    def saved(number):
        torch.save({"model": {"w": torch.full((2,), float(number))}}, start)
        return weights_fingerprint(start)

    one = saved(1)
    facts = {"start": os.path.relpath(start, path)}
    found = RunFolder(write_run(path, attempts=[{"weights": one}], **facts))
    assert found.weights == found.weights_at_start() == one
    assert found.other_weights() == ""
    two = saved(2)
    with refuses(ReproduceError, path, one, two, alone=True):
        found.weights_at_start()
    assert one in found.other_weights() and two in found.other_weights() != one
    start.unlink()  # the result stays that of the first
    assert found.other_weights() == ""
    with refuses(ReproduceError, path, "one.pt"):
        found.weights_at_start()
    assert RunFolder(write_run(path)).weights_at_start() is None


def test_another_checkpoint_of_the_same_name_is_another_run(tmp_path):
    """As of fine-tuning a second checkpoint under the name of a first one."""
    prints = {}
    for name, value in (("one", 1.0), ("two", 2.0)):
        torch.save({"model": {"w": torch.tensor([value])}}, tmp_path / f"{name}.pt")
        prints[name] = weights_fingerprint(tmp_path / f"{name}.pt")
    path = tmp_path / "tiny/a/seed1"
    first = a_run(start=str(tmp_path / "one.pt"))
    RunFolder(path).prepare(first)
    with (path / "train.log").open("a") as log:
        began = {"kind": "attempt", "started": 1.0, "weights": prints["one"]}
        log.write(f"\n{json.dumps(began)}\n{ENDED.format(0)}\n")
    assert RunFolder(path).check(first)
    with refuses(ReproduceError, prints["one"], prints["two"]):
        RunFolder(path).check(a_run(start=str(tmp_path / "two.pt")))


STATUS = """
import sys
from fairseq_transnormer.reproduce.commands import main
code = main(["status", "--preset", "tiny", "--runs-dir", sys.argv[1]])
print({"torch", "fairseq", "omegaconf"} & {*sys.modules})
sys.exit(code)
"""


def test_status_reads_folders_without_torch(tmp_path):
    for name, code in (("a", 0), ("b", 1)):
        log = validations([9.0, 5.5])
        path = write_run(tmp_path / f"tiny/{name}/seed1", log, exit_code=code)
    assert RunFolder(path).updates_done == 2
    write_run(tmp_path / "other/a/seed1")
    (write_run(tmp_path / "tiny/c/seed1") / "run.json").write_text("{")
    words = [sys.executable, "-c", STATUS, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *lines, modules = done.stdout.splitlines()
    assert modules == "set()"
    assert [line.split()[0] for line in lines] == ["finished", "failed", "unreadable"]
    assert lines[0].split()[-3:] == ["tiny/a/seed1", "valid_ppl", "5.5"]
