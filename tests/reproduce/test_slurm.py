"""sbatch scripts, with a stand-in for Slurm that runs them."""

import os
import shlex
import signal
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_transnormer.reproduce import command_line
from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.runs import slurm
from fairseq_transnormer.reproduce.runs.plans import Step
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from tests.messages import refuses

from .stand_in import plan, prepared


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A folder of sbatch and squeue on PATH; sbatch runs the script to its end."""
    commands = tmp_path / "bin"
    commands.mkdir()
    texts = {
        "sbatch": '#!/bin/sh\nbash "$2" > /dev/null || exit 1\necho "7;cluster"\n',
        "squeue": '#!/bin/sh\n[ "$3" = 7 ] && echo "7 gpu run R"\nexit 0\n',
    }
    for name, text in texts.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    return commands


def test_the_script_is_complete(tmp_path):
    folder = prepared(tmp_path, "run with space")
    text = slurm.write_script(folder, 2, ["--partition=gpu", "--time=10:00"])
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    for line in ("--gres=gpu:2", "--partition=gpu", "--time=10:00", "--requeue"):
        assert f"#SBATCH {line}" in lines
    assert "#SBATCH --signal=B:USR1@120" in lines
    assert "#SBATCH --ntasks=1" in lines
    (command,) = (line for line in lines if line.endswith(" &"))
    assert command.startswith(f"{sys.executable} -m fairseq_transnormer reproduce")
    assert f"execute '{folder.path}' --gpus auto" in command
    assert "--gres" not in slurm.write_script(folder, 0, [])


def test_sbatch_reads_a_path_with_spaces_as_one_word(tmp_path):
    """It takes a directive apart at spaces and quotes, and puts %j and others in."""
    folder = prepared(tmp_path, "100% of a run")
    directives = [
        shlex.split(line.removeprefix("#SBATCH "), comments=True)
        for line in slurm.write_script(folder, 1, []).splitlines()
        if line.startswith("#SBATCH ")
    ]
    assert [f"--job-name={tmp_path.name}-100% of a run"] in directives
    assert [f"--output={tmp_path}/100%% of a run/slurm-%j.log"] in directives


STOPS_ONCE = """
import os, signal, sys, time
if os.path.exists("checkpoint"):
    sys.exit()
signal.signal(signal.SIGTERM, lambda *_: (open("checkpoint", "w"), sys.exit(75)))
open("started", "w").close()
time.sleep(60)
"""


def started_job(tmp_path, cluster, folder) -> subprocess.Popen:
    """The run's script as a job of Slurm, when what it starts has begun."""
    (cluster / "scontrol").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/requeued\n')
    (cluster / "scontrol").chmod(0o755)
    slurm.write_script(folder, 0, [])
    start = ["bash", str(folder.path / slurm.SCRIPT)]
    job = subprocess.Popen(start, env=os.environ | {"SLURM_JOB_ID": "7"})
    deadline = time.monotonic() + 200
    while not (folder.path / "started").exists():
        assert job.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    return job


def test_a_job_near_its_limit_saves_and_is_requeued(tmp_path, cluster):
    """Of a stand-in for training: the script, the runner in it, and Slurm's signal."""
    folder = RunFolder(tmp_path / "run")
    folder.prepare(plan("run", [Step("train", [sys.executable, "-c", STOPS_ONCE])]))
    job = started_job(tmp_path, cluster, folder)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(60) == 130
    assert folder.status()["state"] == "interrupted"
    assert folder.status()["attempts"][0]["exit_code"] == os.EX_TEMPFAIL
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    assert main(["execute", str(folder.path), "--gpus", "none"]) == 0
    assert folder.status()["state"] == "finished"


def test_a_job_that_is_cancelled_is_not_requeued(tmp_path, cluster, monkeypatch):
    """Of a stand-in for the runner."""
    folder = prepared(tmp_path, "run")
    runner = tmp_path / "runner"
    runner.write_text(
        "#!/bin/bash\ntrap 'kill $!; exit 130' TERM\nsleep 60 &\n"
        f"touch {folder.path}/started\nwait\n"
    )
    runner.chmod(0o755)
    monkeypatch.setattr(slurm.sys, "executable", str(runner))
    job = started_job(tmp_path, cluster, folder)
    job.send_signal(signal.SIGTERM)
    assert job.wait(60) == 130 and not (tmp_path / "requeued").exists()
    # nor one that ends by itself
    runner.write_text("#!/bin/bash\nexit 0\n")
    assert slurm.submit(folder, 0, []) == "7;cluster"
    assert not (tmp_path / "requeued").exists()


def test_a_waiting_job_is_known(tmp_path, cluster):
    (cluster / "sbatch").write_text("#!/bin/sh\necho 7\n")
    folder = prepared(tmp_path, "run")
    slurm.submit(folder, 1, [])
    assert folder.status()["state"] == "submitted"
    assert slurm.is_queued(folder.status()["slurm_job"])
    assert not slurm.is_queued("8")


def test_a_banner_around_the_jobs_number_is_no_part_of_it(tmp_path, cluster):
    """squeue would not know such a job, and it would be submitted again."""
    folder = prepared(tmp_path, "run")
    for after in ("", "; echo 'Have a nice day'"):
        text = f"#!/bin/sh\necho 'Welcome'; echo '--> OK'; echo '7;far'{after}\n"
        (cluster / "sbatch").write_text(text)
        assert slurm.submit(folder, 0, []) == "7;far"
    assert folder.status()["slurm_job"] == "7;far"
    (cluster / "sbatch").write_text("#!/bin/sh\necho 'done at 7'\n")
    with refuses(ReproduceError, folder.path / slurm.SCRIPT, "done at 7", "number"):
        slurm.submit(folder, 0, [])


def test_variables_of_squeue_hide_no_job(tmp_path, cluster, monkeypatch):
    (cluster / "squeue").write_text(
        '#!/bin/sh\n[ "$SQUEUE_STATES" = RUNNING ] || echo "7 gpu run PD"\n'
    )
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    assert slurm.is_queued("7")


def test_a_job_of_another_cluster_is_asked_for_there(tmp_path, cluster):
    """Here squeue does not know it, and it would be submitted again."""
    (cluster / "sbatch").write_text("#!/bin/sh\necho '7;far'\n")
    (cluster / "squeue").write_text(
        "#!/bin/sh\n"
        '[ "$*" = "${*#*--clusters=far}" ] && exit 0\n'
        'echo "CLUSTER: far"; [ "$3" = 7 ] && echo "7 gpu run R"\nexit 0\n'
    )
    folders = [prepared(tmp_path, name) for name in ("first", "second")]
    folders[1]._write_description({**folders[1].description(), "needs": ["../first"]})
    command_line._submit(folders, 0, [])
    assert slurm.is_queued(folders[0].status()["slurm_job"])
    assert not slurm.is_queued("8;far")
    assert "--dependency=afterok:7\n" in (folders[1].path / slurm.SCRIPT).read_text()


def asked(tmp_path, *names):
    """What the runner still has to do of these runs."""
    given = Namespace(runs_dir=tmp_path, dry_run=False)
    return command_line._prepared([plan(name) for name in names], given)


def test_a_requeued_job_is_not_submitted_again(tmp_path, cluster, capsys):
    """It waits with the state of the attempt that the time limit ended."""
    folder = prepared(tmp_path, "run")
    for job, left in (("7", []), ("8", ["run"])):
        folder.write_status({**folder.status(), "state": "interrupted"})
        folder.write_status({**folder.status(), "slurm_job": job})
        assert [each.path.name for each in asked(tmp_path, "run")] == left
    assert "job 7" in capsys.readouterr().out


def test_a_job_with_other_settings_is_not_taken_for_this_run(tmp_path, cluster):
    """It has no checkpoint to lose, but what it trains is not what is asked for."""
    folder = prepared(tmp_path, "run")
    folder.write_status({**folder.status(), "state": "submitted", "slurm_job": "7"})
    changed = plan("run")
    changed.configuration["optimization"] = {"max_update": 9}
    given = Namespace(runs_dir=tmp_path, dry_run=False)
    with refuses(ReproduceError, folder.path, "max_update", 3, 9, "job 7"):
        command_line._prepared([changed], given)
    # a run that waits for the weights that it starts from
    waiting = replace(plan("run"), start="../first/checkpoint.pt", needs=["first"])
    prepared(tmp_path, "first")
    assert command_line._prepared([waiting], given) == []


def test_an_unknown_job_is_not_one_that_nobody_could_ask_of(tmp_path, cluster):
    squeue = cluster / "squeue"
    squeue.write_text("#!/bin/sh\necho 'error: Invalid job id specified' >&2\nexit 1\n")
    assert not slurm.is_queued("7")
    squeue.write_text("#!/bin/sh\necho 'Socket timed out' >&2\nexit 1\n")
    with refuses(ReproduceError, "squeue", "7", "Socket timed out"):
        slurm.is_queued("7")


def test_a_job_ends_where_what_it_needs_fails(tmp_path, cluster):
    """Else it waits for ever, and the run is never submitted again."""
    (cluster / "sbatch").write_text("#!/bin/sh\necho 7\n")
    folders = [prepared(tmp_path, name) for name in ("first", "second")]
    folders[1]._write_description({**folders[1].description(), "needs": ["../first"]})
    command_line._submit(folders, 0, [])
    first, second = ((each.path / slurm.SCRIPT).read_text() for each in folders)
    for option in ("--dependency=afterok:7", "--kill-on-invalid-dep=yes"):
        assert f"#SBATCH {option}" in second and option not in first


def test_a_refusal_is_told(tmp_path, cluster):
    (cluster / "sbatch").write_text("#!/bin/sh\necho no such partition >&2\nexit 1\n")
    folder = prepared(tmp_path, "run")
    script = folder.path / slurm.SCRIPT
    with refuses(ReproduceError, "sbatch", script, "no such partition"):
        slurm.submit(folder, 1, [])


def test_without_slurm_there_is_a_message(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(tmp_path)))
    with refuses(ReproduceError, "--slurm", "sbatch", "PATH"):
        slurm.require_slurm()
