"""Runs as jobs of Slurm: one sbatch script in each run's folder."""

import os
import re
import shlex
import shutil
import subprocess
import sys

from ...installation import PACKAGE
from ...training.exit_code import EXIT_RESUMABLE
from ..errors import ReproduceError
from .run_folder import RunFolder

SCRIPT = "job.sbatch"
# what squeue says of a job that ended a while ago
UNKNOWN_JOB = "invalid job id"
# of --parsable; some clusters' sbatch prints lines of its own around it
SUBMITTED_JOB = re.compile(r"[0-9]+(;\S+)?")
# after this signal a run has as long to write a checkpoint
SECONDS_BEFORE_THE_LIMIT = 120
# exec would leave nobody to requeue; scancel sends no SIGUSR1, and a job that is
# pre-empted is requeued by Slurm
RUN_AND_REQUEUE = """\
{command} &
run=$!
trap 'again=yes; limit=near; kill -TERM "$run"' USR1
trap 'again=yes; kill -TERM "$run"' TERM
again=yes
while [ "$again" ]; do again=; wait "$run"; code=$?; done  # a trap ends a wait
case $limit-$code in
    near-130 | near-{more_to_do}) scontrol requeue "$SLURM_JOB_ID" ;;
esac
exit "$code"
"""


def require_slurm() -> None:
    """Raise ReproduceError unless sbatch is there."""
    if shutil.which("sbatch") is None:
        raise ReproduceError("--slurm: no sbatch on this machine's PATH")


def is_queued(job: str) -> bool:
    """Whether Slurm still has this job; False where squeue does not know it.

    Args:
        job: its number and, of a job of another cluster, ``;`` and the cluster.

    Raises:
        ReproduceError: Slurm does not answer.
    """
    if shutil.which("squeue") is None:
        return False
    number, _, cluster = job.partition(";")
    where = [f"--clusters={cluster}"] if cluster else []
    # such a variable filters jobs, as --states does, or the list's form
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("SQUEUE_")
    }
    done = subprocess.run(
        ["squeue", "--noheader", "--jobs", number, *where],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode and UNKNOWN_JOB not in done.stderr.lower():
        raise ReproduceError(
            f"squeue --jobs {job}: {done.stderr.strip()}; a run that Slurm may still "
            "have is not started again: run the same command when Slurm answers"
        )
    # another cluster's name stands first, whether it has the job or not
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return done.returncode == 0 and any(not x.startswith("CLUSTER:") for x in lines)


def write_script(folder: RunFolder, gpus: int, options: list[str]) -> str:
    """Write the folder's sbatch script; returns its text.

    Args:
        folder: of a prepared run.
        gpus: that it takes.
        options: of sbatch, such as "--partition=gpu"; they win over ours.
    """
    name = "-".join(folder.path.parts[-2:])
    # in a file's name % begins what Slurm fills in
    log = f"{folder.path}/".replace("%", "%%") + "slurm-%j.log"
    command = (
        f"{shlex.quote(sys.executable)} -m fairseq_transnormer reproduce execute"
        f" {shlex.quote(str(folder.path))} --gpus {'auto' if gpus else 'none'}"
    )
    packages = shlex.quote(str(PACKAGE.parent))
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={shlex.quote(name)}",
        f"#SBATCH --output={shlex.quote(log)}",
        "#SBATCH --open-mode=append",
        "#SBATCH --ntasks=1",  # or fairseq misses SLURM_NTASKS
        "#SBATCH --requeue",
        f"#SBATCH --signal=B:USR1@{SECONDS_BEFORE_THE_LIMIT}",
        *([f"#SBATCH --gres=gpu:{gpus}"] if gpus else []),
        *(f"#SBATCH {option}" for option in options),
        f"export PYTHONPATH={packages}${{PYTHONPATH:+:$PYTHONPATH}}",
        RUN_AND_REQUEUE.format(command=command, more_to_do=EXIT_RESUMABLE),
    ]
    text = "\n".join(lines)
    (folder.path / SCRIPT).write_text(text, encoding="utf-8")
    return text


def submit(folder: RunFolder, gpus: int, options: list[str]) -> str:
    """Write the script and hand it to sbatch; returns the job, as ``is_queued`` has it.

    Raises:
        ReproduceError: sbatch refused it, or does not say which job it is.
    """
    write_script(folder, gpus, options)
    status = folder.status()
    done = subprocess.run(
        ["sbatch", "--parsable", str(folder.path / SCRIPT)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ReproduceError(f"sbatch {folder.path / SCRIPT}: {done.stderr.strip()}")
    lines = [line.strip() for line in done.stdout.splitlines()]
    job = next((x for x in reversed(lines) if SUBMITTED_JOB.fullmatch(x)), None)
    if job is None:
        raise ReproduceError(
            f"sbatch {folder.path / SCRIPT}: it printed {done.stdout.strip()!r}; "
            "allowed: a line with a job's number, as of --parsable. See in squeue "
            "whether there is a job"
        )
    # a job that started at once has written its own status
    if folder.status()["state"] == status["state"] and not folder.is_locked():
        folder.write_status({**status, "state": "submitted", "slurm_job": job})
    return job
