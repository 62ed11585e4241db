"""The folder of a run: its state, and what is refused before anything is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.reproduce.data import Data
from fairseq_transnormer.reproduce.runs import Run, RunFolder

from .made import CONFIGURATION, files, refused, validations, write_run

BEGAN = '{"kind": "attempt", "started": 1.0}'
ENDED = '{{"kind": "attempt_end", "seconds": 2.0, "exit_code": {}}}'
LINES = {"B": BEGAN, "S": '{"kind": "submitted", "job": "7"}', "x": "a line of a log"}
# half a line, of a process that was killed or a disk that was full
LINES |= {"b": BEGAN[:20], "e": ENDED[:30], "eb": ENDED.format(0)[:-9] + BEGAN}
# a state, and lines of the log: ended with a code, killed without an end, resumed, ...
STATES_OF = """
new x : new 0 : submitted S : submitted B 75 S : finished B S 0 : finished B 0
interrupted B : interrupted B 75 : interrupted B -15 : interrupted B 0 B : failed B 1
interrupted B -9 : finished B 75 B 0 : interrupted B e : finished b B 0 : failed eb B 1
"""


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


def test_the_state_follows_from_the_log(folder):
    for each in STATES_OF.strip().replace("\n", " : ").split(" : "):
        state, *codes = each.split()
        lines = [LINES.get(code) or ENDED.format(code) for code in codes]
        (folder.path / "train.log").write_text("".join(f"\n{line}\n" for line in lines))
        folder.forget()
        assert folder.state == state, each
        assert folder.is_finished == (state == "finished")
    with (folder.path / "train.log").open("ab") as log:
        log.write(b"\n" + BEGAN.encode() + b"\nhalf \xff of")
    folder.append("attempt_end", seconds=1.5, exit_code=0)
    assert folder.is_finished and folder.attempts[-1]["seconds"] == 1.5


@pytest.mark.parametrize("name", [".lock", "checkpoints/training.lock"])
def test_what_another_process_holds_is_running(folder, name):
    """A job, or a training that outlived it."""
    (folder.path / name).parent.mkdir(exist_ok=True)
    script = (
        "import sys, time; from filelock import FileLock\nwith FileLock(sys.argv[1]):"
    )
    script += "\n  print(flush=True); time.sleep(60)"
    words = [sys.executable, "-c", script, str(folder.path / name)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout.readline() == b"\n" and folder.state == "running"
            if name == ".lock":
                with refused(folder.path), folder.lock():
                    pass
            with refused(folder.path, "model.width", 8, 9):
                folder.check(a_run(width=9))
        finally:
            other.kill()
    assert folder.state == "new"


def test_another_runs_results_are_refused_and_kept(folder):
    checkpoint, log = folder.path / "checkpoints/x.pt", folder.path / "train.log"
    for width in (16, 8):  # without progress it is prepared anew, and its log kept
        log.write_text(f"before {width}\n{BEGAN}\n{ENDED.format(1)}\n")
        folder.prepare(a_run(width=width))
        assert folder.state == "new" and not log.exists()
        assert RunFolder(folder.path).configuration["model"]["width"] == width
    kept = {path.read_text()[:9] for path in folder.path.glob("train.log.*")}
    assert kept == {"before 16", "before 8\n"}
    checkpoint.parent.mkdir()
    checkpoint.touch()
    log.write_text("of width 8")
    before = files(folder.path)
    assert folder.check(a_run())
    folder.prepare(a_run())
    for other, *parts in (
        (a_run(width=9), "model.width", 8, 9),
        (a_run(start="../x.pt"), "weights"),
        (a_run(name="tiny/b/seed1"), "name", "tiny/b/seed1"),
    ):
        for ask in (folder.check, folder.prepare):
            with refused(folder.path, *parts):
                ask(other)
    assert files(folder.path) == before
    facts = folder.path / "run.json"
    for content, *parts in (
        (before[facts].replace(b'fingerprint": "', b'fingerprint": "d2'), "data", "d2"),
        (b"{", "damaged"),
        (None, "checkpoints", "run.json"),
    ):
        facts.unlink() if content is None else facts.write_bytes(content)
        with refused(folder.path, *parts):
            RunFolder(folder.path).check(a_run())
    facts.write_bytes(before[facts])
    # what has finished is a result without a checkpoint, too; else nothing is lost
    checkpoint.unlink()
    log.write_text(f"{BEGAN}\n{ENDED.format(0)}\n")
    with refused("model.width"):
        RunFolder(folder.path).check(a_run(width=9))
    log.unlink()
    (folder.path / "config.yaml").write_text("{")
    assert not RunFolder(folder.path).check(a_run())


def test_weights_that_changed_since_the_start_are_refused(tmp_path):
    start, path = tmp_path / "one.pt", tmp_path / "runs/tiny/a/seed1"
    run = a_run(start=os.path.relpath(start, path))

    def saved(number):
        torch.save({"model": {"w": torch.full((2,), float(number))}}, start)
        return weights_fingerprint(start)

    one, found = saved(1), RunFolder(path)
    found.prepare(run)
    found.append("attempt", started=1.0, weights=one)
    found.append("attempt_end", seconds=1.0, exit_code=0)
    assert found.weights == found.weights_at_start() == one and found.check(run)
    assert found.other_weights() == ""
    two = saved(2)
    # nor is a second checkpoint under the name of a first one the same run
    for ask in (found.weights_at_start, lambda: found.check(run)):
        with refused(path, one, two):
            ask()
    assert one in found.other_weights() and two in found.other_weights() != one
    start.unlink()  # the result stays that of the first
    assert found.other_weights() == ""
    with refused("one.pt"):
        found.weights_at_start()


STATUS = """
import sys
from fairseq_transnormer.reproduce.commands import main
code = main(["status", "--preset", "tiny.yml", "--runs-dir", sys.argv[1]])
print(code, {"torch", "fairseq", "omegaconf"} & {*sys.modules})
"""


def test_status_reads_folders_without_torch(tmp_path):
    for name, code in (("tiny/a", 0), ("tiny/b", 1), ("tiny+x=0.1/c", 1)):
        log = validations([9.0, 5.5])
        path = write_run(tmp_path / f"{name}/seed1", log, exit_code=code)
    (path / "run.json").write_text("{")
    write_run(tmp_path / "tiny2/a/seed1")
    words = [sys.executable, "-c", STATUS, str(tmp_path)]
    *lines, last = subprocess.check_output(words, text=True).splitlines()
    assert last == "0 set()"
    assert [line.split()[0] for line in lines] == ["finished", "failed", "unreadable"]
    assert lines[0].split()[-3:] == ["tiny/a/seed1", "valid_ppl", "5.5"]
    assert lines[0].split()[1] == "2"
