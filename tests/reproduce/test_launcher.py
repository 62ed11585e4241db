"""Runs as jobs of submitit, with small scripts in the place of trainings."""

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest
import torch

from fairseq_transnormer.reproduce import actions, launcher
from fairseq_transnormer.reproduce.data import FILES, Data, fingerprint
from fairseq_transnormer.reproduce.launcher import Job, Slots, run_all, submit_all
from fairseq_transnormer.reproduce.runs import RunFolder
from tests.forked_trainings import wait_until
from tests.messages import refuses

from .made import refused, write_run

# leaves a file, and waits for others
MEETS = """
import pathlib, sys, time
mine, *others = map(pathlib.Path, sys.argv[1:])
mine.touch()
for _ in range(3000):
    if all(each.exists() for each in others):
        sys.exit()
    time.sleep(0.02)
sys.exit(3)
"""
# writes a checkpoint at SIGTERM; the next attempt ends at once
STOPS = """
import os, signal, sys, time
if os.path.exists("checkpoint"):
    sys.exit()
signal.signal(signal.SIGTERM, lambda *_: (open("checkpoint", "w"), sys.exit(75)))
open("started", "w").close()
time.sleep(60)
"""
TELLS = 'import os; open("told", "w").write(os.environ["CUDA_VISIBLE_DEVICES"])'
RUNNER = """
import sys
from pathlib import Path
from fairseq_transnormer.reproduce import launcher
from fairseq_transnormer.reproduce.runs import RunFolder
folders = [RunFolder(Path(path)) for path in sys.argv[1:]]
launcher.run_all(folders, folders[0].path.parents[1], launcher.Slots(0, 2))
"""


def scripts(runs, **given):
    """name -> a script, or (script, words of its command, needs): their folders."""
    found = []
    for name, each in given.items():
        script, words, needs = (each, [], []) if isinstance(each, str) else each
        given = {"needs": [f"{need}/seed1" for need in needs], "attempts": ()}
        given["command"] = [sys.executable, "-c", script, *map(str, words)]
        given["data_fingerprint"] = ""
        found.append(RunFolder(write_run(runs / f"{name}/seed1", **given)))
    return found


def names(folders):
    return [folder.path.parent.name for folder in folders]


def test_runs_of_this_machine(tmp_path, capfd):
    """Two at once; one that fails stops no other, but those that need it."""
    met, runs = [tmp_path / name for name in "abc"], tmp_path / "runs"
    late = f"import os; raise SystemExit(not os.path.exists({str(met[2])!r}))"
    folders = scripts(
        runs,
        one=(MEETS, [met[0], met[1]], []),
        two=(MEETS, [met[1], met[0]], []),
        lost=("", [], ["broken"]),
        late=(late, [], ["early"]),
        broken='print("the disk is full"); raise SystemExit(4)',
        early=(MEETS, [met[2]], []),
        alone=("", [], ["nowhere"]),
    )
    ended = run_all(folders, runs, Slots(0, 2), interval=0)
    assert sorted(names(ended["finished"])) == ["early", "late", "one", "two"]
    assert sorted(names(ended["failed"])) == ["alone", "broken", "lost"]
    out, _ = capfd.readouterr()
    assert "the disk is full" in out and "of 7 runs" in out
    (attempt,) = RunFolder(runs / "broken/seed1").attempts
    assert attempt["exit_code"] == 4 and attempt["seconds"] > 0
    assert attempt["device"].endswith("2 at once") and attempt["versions"]["torch"]
    assert not (runs / "lost/seed1/train.log").read_text()


def test_a_need_that_another_runner_finishes_while_it_is_asked(tmp_path, monkeypatch):
    early, late = scripts(tmp_path, early="", late=("", [], ["early"]))
    run_all([early], tmp_path, Slots(0, 1))
    state, at, first = RunFolder.state.fget, early.path, ["running"]
    asked = property(lambda it: first.pop() if first and it.path == at else state(it))
    monkeypatch.setattr(RunFolder, "state", asked)
    assert run_all([late], tmp_path, Slots(0, 1))["finished"] == [late] and not first


def runner(*folders):
    words = [sys.executable, "-c", RUNNER, *(str(folder.path) for folder in folders)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_a_runner_that_is_stopped_lets_its_runs_save(tmp_path):
    one, two, waiting = scripts(tmp_path, one=STOPS, two=STOPS, three="")
    with runner(one, two, waiting) as process:
        wait_until(lambda: all((f.path / "started").exists() for f in (one, two)))
        process.terminate()
        out, _ = process.communicate(timeout=60)
    assert process.returncode and b"KeyboardInterrupt" in out
    for folder in (one, two):
        folder.forget()
        assert folder.state == "interrupted" and (folder.path / "checkpoint").exists()
        assert folder.attempts[0]["exit_code"] == 75
    assert waiting.state == "new"
    assert run_all([one], tmp_path, Slots(0, 1))["finished"] == [one]
    assert len(one.attempts) == 2


def test_a_signal_before_the_training_starts_is_not_lost(tmp_path, monkeypatch):
    """While weights are hashed, as here the commit: the training would go on."""
    (folder,) = scripts(tmp_path, one=(MEETS, [tmp_path / "began"], []))
    kill = lambda: os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    monkeypatch.setattr(launcher, "commit", kill)
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # as submitit's
    try:
        with pytest.raises(launcher.RunFailed):
            Job(folder.path, tmp_path, {}, "here", False)()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert folder.state == "interrupted" and not (tmp_path / "began").exists()


def test_a_runner_that_is_killed_leaves_its_run_working(tmp_path, capsys):
    here, go = tmp_path / "here", tmp_path / "go"
    (folder,) = scripts(tmp_path, one=(MEETS, [here, go], []))
    with runner(folder) as process:
        wait_until(here.exists)
        process.kill()
    assert folder.state == "running" and actions.is_held(folder)
    assert "skipped" in capsys.readouterr().out
    assert run_all([folder], tmp_path, Slots(0, 1))["running"] == [folder]
    assert "another process trains it" in capsys.readouterr().out
    go.touch()
    wait_until(lambda: RunFolder(folder.path).is_finished)
    # nor is it trained again where it was planned before
    assert run_all([folder], tmp_path, Slots(0, 1))["finished"] == [folder]
    assert not actions.is_held(folder) and len(folder.attempts) == 1
    folder.append("submitted", job="17")  # by a runner that had looked before
    assert RunFolder(folder.path).is_finished


def test_slots_are_groups_of_gpus_or_shares_of_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "visible_gpus", lambda: ["0", "1", "GPU-a", "3", "4"])
    assert Slots(2, None).free == ["0,1", "GPU-a,3"] and len(Slots(1, None).free) == 5
    assert Slots(4, 3).free == ["0,1,GPU-a,3"] * 3
    with refused("--gpus 6", 5, 0):
        Slots(6, None)
    folders = scripts(tmp_path, one=TELLS, two=TELLS)
    run_all(folders, tmp_path, Slots(2, None))
    told = [(folder.path / "told").read_text() for folder in folders]
    assert sorted(told) == ["0,1", "GPU-a,3"]
    devices = [folder.attempts[0]["device"] for folder in folders]
    assert devices == [f"GPU {group}, 2 at once" for group in told]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for jobs, threads in ((None, "6"), (2, "3"), (9, "1")):
        slots = Slots(0, jobs)
        own = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": threads}
        assert len(slots.free) == (jobs or 1) and slots.environment("") == own
        assert slots.device("") == f"CPU, {threads} threads, {jobs or 1} at once"
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert Slots(0, 2).environment("") == {"CUDA_VISIBLE_DEVICES": ""}
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    groups = {"": "0,1", "GPU-a, GPU-b": "GPU-a,GPU-b", "5,7,9": "5,7"}
    for value, group in groups.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert Slots(2, None).free == [group]


def test_data_that_were_replaced_are_another_runs(tmp_path, capfd):
    """While a run waits, and while it trains: its figure would be of both."""
    data = tmp_path / "data"
    data.mkdir()
    for name in FILES:
        (data / name).write_text("first")
    given = {"data": str(data), "task": "masked_lm", "attempts": ()}
    given["data_fingerprint"] = fingerprint(Data(data, "masked_lm"))
    replaces = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('second')"
    given["command"] = [sys.executable, "-c", replaces, str(data / "train.bin")]
    folders = [RunFolder(write_run(tmp_path / f"{n}/seed1", **given)) for n in "ab"]
    # the second waits for the first's place
    assert run_all(folders, tmp_path, Slots(0, 1))["failed"] == folders
    out, _ = capfd.readouterr()
    assert out.count(f"data {given['data_fingerprint']}") == 2
    one, two = folders
    assert one.attempts[0]["exit_code"] == 1 and not two.attempts
    for name in FILES:
        (data / name).unlink()
    assert FILES[0] in two.other_data()


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A folder on PATH with sbatch and its like; jobs/N has what sbatch was given."""
    found, jobs = tmp_path / "bin", tmp_path / "jobs"
    found.mkdir()
    jobs.mkdir()
    texts = {
        "sbatch": f'n=$(($(ls {jobs} | wc -l) + 7))\ncp "$1" {jobs}/$n\n'
        'echo "Submitted batch job $n"',
        "srun": "exit 1",
        "squeue": '[ "$3" = 7 ] && [ -z "$SQUEUE_STATES" ] && echo "7 gpu R"\nexit 0',
        "scontrol": f'echo "$@" >> {tmp_path}/requeued',
    }
    for name, text in texts.items():
        (found / name).write_text(f"#!/bin/sh\n{text}\n")
        (found / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{found}{os.pathsep}{os.environ['PATH']}")
    return found


def options_of(tmp_path, job):
    lines = (tmp_path / f"jobs/{job}").read_text().split("\n#SBATCH --")[1:]
    return dict(shlex.split(line)[0].partition("=")[::2] for line in lines)


def test_jobs_of_slurm_and_their_order(tmp_path, cluster):
    runs, options = tmp_path / "runs with space", {"partition": "gpu", "time": "90"}
    given = {"a": "", "b": ("", [], ["a"]), "c": ("", [], ["a", "b"])}
    submit_all(scripts(runs, **given), runs, 2, options)
    one, two, three = (options_of(tmp_path, job) for job in (7, 8, 9))
    for found in (one, two, three):
        assert {key: found[key] for key in options} == options
        assert found["gpus-per-node"] == "2" and "requeue" in found
        assert found["signal"] == "USR2@120"
    assert "dependency" not in one and two["dependency"] == "afterok:7"
    assert three["dependency"] == "afterok:7:8"
    # else it waits for ever, and the run is never submitted again
    assert two["kill-on-invalid-dep"] == "yes"
    second = RunFolder(runs / "b/seed1")
    assert (second.state, second.job) == ("submitted", "8")
    # what is submitted already is waited for; what is finished is not
    write_run(runs / "e/seed1")
    fourth, fifth = scripts(runs, d=("", [], ["c", "e"]), f=("", [], ["nowhere"]))
    submit_all([fourth], runs, 0, {})
    last = options_of(tmp_path, 10)
    assert last["dependency"] == "afterok:9" and "gpus-per-node" not in last
    with refused("f/seed1", "nowhere/seed1"):
        submit_all([fifth], runs, 0, {})


def test_a_job_that_is_queued_is_not_submitted_again(tmp_path, cluster, monkeypatch):
    (folder,) = scripts(tmp_path, a="")
    submit_all([folder], tmp_path, 0, {})
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")  # it would hide the job
    # nor one that was requeued, with the state of its last attempt
    for state in ("submitted", "interrupted"):
        assert folder.state == state and actions.is_held(folder)
        folder.append("attempt", started=1.0)
        folder.append("attempt_end", seconds=1.0, exit_code=75)
    folder.append("submitted", job="8")
    assert not actions.is_held(folder)
    fails = "#!/bin/sh\necho '{}' >&2\nexit 1\n"
    (cluster / "squeue").write_text(fails.format("Invalid job id specified"))
    assert not launcher.is_queued("7")
    (cluster / "squeue").write_text(fails.format("Socket timed out"))
    with refused("squeue", 7, "Socket timed out"):
        launcher.is_queued("7")
    (cluster / "sbatch").write_text(fails.format("no such partition"))
    with refuses(ValueError, "sbatch", folder.path, "no such partition", alone=True):
        submit_all([folder], tmp_path, 0, {})
    monkeypatch.setenv("PATH", "/no/such")
    assert not launcher.is_queued("7")
    with refused("--cluster slurm", "sbatch"):
        submit_all([folder], tmp_path, 0, {})


def test_a_job_near_its_limit_saves_and_is_requeued(tmp_path, cluster):
    (folder,) = scripts(tmp_path / "runs", a=STOPS)
    submit_all([folder], tmp_path / "runs", 0, {})
    script = (tmp_path / "jobs/7").read_text().splitlines()
    (line,) = (line for line in script if line.startswith("srun "))
    words = shlex.split(line)
    words = words[words.index(sys.executable) :]
    environment = os.environ | {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "7"}
    environment |= dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"), "0")
    given = {"env": environment, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, **given) as job:
        wait_until((folder.path / "started").exists)
        job.send_signal(signal.SIGUSR2)
        assert job.wait(60)
    folder.forget()
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    assert folder.state == "interrupted" and (folder.path / "checkpoint").exists()
    assert [each["exit_code"] for each in folder.attempts] == [75]
    with subprocess.Popen(words, **given) as job:
        assert job.wait(60) == 0
    folder.forget()
    assert folder.state == "finished" and len(folder.attempts) == 2


def test_a_job_whose_need_is_not_finished_trains_nothing(tmp_path):
    """Slurm runs one that waits for a job which it has forgotten."""
    need, last = scripts(tmp_path, need=STOPS, last=STOPS)
    facts = json.loads((last.path / "run.json").read_text())
    facts["needs"] = [need.path.relative_to(tmp_path).as_posix()]
    (last.path / "run.json").write_text(json.dumps(facts))
    last.forget()
    with refuses(ValueError, "need", "not finished"):
        Job(last.path, tmp_path, {}, "here", False)()
    last.forget()
    assert not last.attempts and not (last.path / "started").exists()
