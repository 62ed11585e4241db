"""Runs as jobs of submitit: on this machine, in this process, or by Slurm."""

import contextlib
import logging
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from submitit import AutoExecutor
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.helpers import DelayedSubmission

from ..installation import PACKAGE
from ..training.exit_code import EXIT_RESUMABLE, ended_by
from ..training.processes import handling, set_up_logging
from .runs import (
    BEGAN,
    ENDED,
    FAILED,
    FINISHED,
    INTERRUPTED,
    LOG,
    RUNNING,
    SUBMITTED,
    RunFolder,
)
from .versions import commit, machine, versions

POLL_SECONDS = 0.2
# what ends a runner, and its trainings after a checkpoint
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# what a terminal sends, jobs leave to the runner
LEFT = {signal.SIGINT: signal.SIG_IGN, signal.SIGHUP: signal.SIG_IGN}
# between Slurm's signal and the time limit, for a checkpoint
SIGNAL_DELAY_SECONDS = 120
MOST_REQUEUES = 1000  # of a job that its time limit ends
FOREVER_MINUTES = 60 * 24 * 365
TAIL_LINES = 12
RAISED = r"^(?:\w+Error|[\w.]+\.RunFailed): (.*)"  # the end of a traceback


class RunFailed(Exception):
    """A run has ended with another exit code than 0."""


@dataclass
class Job:
    """What submitit calls: the command of a run, in its folder."""

    folder: Path  # of a prepared run
    runs: Path  # the folder of all runs
    environment: dict[str, str]  # of the command, on top of the job's
    device: str  # where it runs, for the record
    in_process: bool = False  # train in this process, without one of its own

    def __post_init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped, self._began = False, 0.0

    def __call__(self) -> None:
        """Run it to its end.

        RunFailed where it has ended otherwise, or was stopped. ValueError where what it
        needs is not there, it starts from other weights, or its data were replaced.
        """
        run = RunFolder(self.folder)
        # from here on: submitit itself passes SIGTERM over
        signals = {} if self.in_process else {signal.SIGTERM: self._stop}
        with run.lock(), handling(signals):
            if run.has_ended_well:
                return  # by another runner, since this one asked
            # Slurm runs a job that waits for one it has forgotten
            for need in run.unfinished_needs(self.runs):
                raise ValueError(f"{run.path} needs {need.path}: it is not finished")
            if why := run.other_data():
                raise ValueError(why)
            with_what = {"machine": machine(), "commit": commit()}
            with_what |= {"versions": versions(), "weights": run.weights_at_start()}
            run.append(BEGAN, started=time.time(), device=self.device, **with_what)
            self._began = time.monotonic()
            with (self.folder / LOG).open("a", encoding="utf-8") as log:
                command = run.facts["command"]
                code = EXIT_RESUMABLE if self._stopped else self._run(command, log)
            why = "" if code else run.other_data()
            self._note_end(code or int(bool(why)))
        if why:
            raise ValueError(why)
        if code:
            raise RunFailed(f"{self.folder}: ended by {ended_by(code)}")

    def checkpoint(self) -> Any:
        """Called by submitit before a time limit, or where Slurm takes the machine."""
        self._stop(signal.SIGTERM)
        if self._child is not None:
            # the handler has interrupted a wait, whose lock it must not ask for
            ended = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
            signalled = ended.si_code != os.CLD_EXITED
            self._note_end(-ended.si_status if signalled else ended.si_status)
        return DelayedSubmission(self)

    def _run(self, command: Sequence[str], log: Any) -> int:
        if self.in_process:
            return _in_this_process(command, self.folder, log)
        places = (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))
        path = {"PYTHONPATH": os.pathsep.join(filter(None, places))}
        # of its own group: the signals of a terminal reach the runner alone; what ends
        # the job waits until there is a child to hand it on to
        held = (signal.SIGTERM, signal.SIGUSR2)
        signal.pthread_sigmask(signal.SIG_BLOCK, held)
        try:
            self._child = subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | self.environment | path | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, held),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, held)
        if self._stopped:  # while it was started
            self._stop(signal.SIGTERM)
        return self._child.wait()

    def _stop(self, number: int, frame: FrameType | None = None) -> None:
        """Let the training write a checkpoint and end."""
        self._stopped = True
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGTERM)

    def _note_end(self, code: int) -> None:
        seconds = time.monotonic() - self._began
        RunFolder(self.folder).append(ENDED, seconds=seconds, exit_code=code)

    def __reduce__(self) -> Any:  # a child cannot be pickled
        given = self.folder, self.runs, self.environment, self.device, self.in_process
        return Job, given


def _in_this_process(command: Sequence[str], folder: Path, log: Any) -> int:
    """The exit code of ``python -m MODULE ARGUMENTS``, its output in the log."""
    _, _, module, *arguments = command
    before, place = sys.argv, os.getcwd()
    sys.argv = [module, *arguments]
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            set_up_logging(anew=True)
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        traceback.print_exc(file=log)
        return 1
    finally:
        logging.getLogger().handlers.clear()
        os.chdir(place)
        sys.argv = before
    return 0


class Slots:
    """Places for runs on this machine: groups of its GPUs, or shares of its cores.

    A run takes ``gpus``; 0 trains on the CPU. There are as many runs at once as groups,
    or one on the CPU; more ``jobs`` than groups share them.
    """

    def __init__(self, gpus: int, jobs: int | None) -> None:
        groups, there = [""], visible_gpus() if gpus else []
        if len(there) < gpus:
            why = f"this machine has {len(there)}; 0 trains on the CPU"
            raise ValueError(f"--gpus {gpus}: {why}")
        if gpus:
            starts = range(0, len(there) - gpus + 1, gpus)
            groups = [",".join(there[start : start + gpus]) for start in starts]
        self.free = [groups[i % len(groups)] for i in range(jobs or len(groups))]
        self.many = len(self.free)

    def environment(self, group: str) -> dict[str, str]:
        """Of a run on a group of GPUs, or on the CPU where it is empty."""
        own = {"CUDA_VISIBLE_DEVICES": group}
        if not group and "OMP_NUM_THREADS" not in os.environ:
            threads = max(1, len(os.sched_getaffinity(0)) // self.many)
            own["OMP_NUM_THREADS"] = str(threads)
        return own

    def device(self, group: str) -> str:
        """The place in words; speeds are comparable only at equal values of it."""
        threads = (os.environ | self.environment(group)).get("OMP_NUM_THREADS")
        place = f"GPU {group}" if group else f"CPU, {threads} threads"
        return f"{place}, {self.many} at once"


def visible_gpus() -> list[str]:
    """This machine's GPUs as CUDA_VISIBLE_DEVICES names them: numbers, or UUIDs."""
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else map(str, range(count))
    return [name.strip() for name in names][:count]


def run_all(
    folders: Sequence[RunFolder],
    runs: Path,
    slots: Slots,
    in_process: bool = False,
    interval: float = 30,
) -> dict[str, list[RunFolder]]:
    """Run every folder to its end; one that fails does not stop the others.

    SIGINT, SIGTERM and SIGHUP, as of a terminal that is closed, end the runs after a
    checkpoint of each, and raise KeyboardInterrupt then.

    Args:
        folders: of prepared runs, each after those that it needs.
        runs: the folder of all runs.
        in_process: train in this process, one run after the other.
        interval: seconds between two lines of progress.

    Returns:
        "finished", "interrupted", "failed", and "running" by another runner: folders.
    """
    cluster = "debug" if in_process else "local"
    executor = AutoExecutor(runs / "submitit", cluster=cluster)
    executor.update_parameters(timeout_min=FOREVER_MINUTES)
    waiting, running = list(folders), {}
    states = FINISHED, INTERRUPTED, FAILED, RUNNING
    ended: dict[str, list[RunFolder]] = {state: [] for state in states}
    began = printed = time.monotonic()
    at_start = _updates_of(folders)
    # signals to end that have come: an exception would leave children behind
    noted: list[int] = []
    note = dict.fromkeys(STOPPING, lambda number, frame: noted.append(number))
    with handling(note):
        while (waiting or running) and not noted:
            for folder in list(waiting):
                ours = [each.path for each in (*waiting, *running)]
                ready = _readiness(folder, runs, ours)
                if not ready or (ready != FAILED and not slots.free):
                    continue
                waiting.remove(folder)
                if ready == FAILED:
                    ended[FAILED].append(folder)
                    print(f"failed   {folder.path}: what it needs is not finished")
                else:
                    group = slots.free.pop(0)
                    given = slots.environment(group), slots.device(group)
                    job = Job(folder.path, runs, *given, in_process)
                    print(f"started  {folder.path} on {job.device}", flush=True)
                    with handling(LEFT):
                        running[folder] = (executor.submit(job), group)
            for folder, (job, group) in list(running.items()):
                # submitit runs a job of this process whenever it is asked for its end
                raised = job.exception() if in_process else None
                if in_process or job.done():
                    del running[folder]
                    slots.free.append(group)
                    _end(folder, job, raised, ended)
            if time.monotonic() - printed >= interval:
                over = sum(map(len, ended.values()))
                _print_progress(folders, over, began, at_start)
                printed = time.monotonic()
            time.sleep(0 if in_process else POLL_SECONDS)
        if noted:
            print(f"interrupted: stopping {len(running)} runs", flush=True)
        _stop_all([job for job, _ in running.values()], noted)
    if noted:
        raise KeyboardInterrupt
    return ended


def _readiness(folder: RunFolder, runs: Path, paths: Sequence[Path]) -> str | bool:
    """Whether a run can start, of which these wait or run; ``FAILED`` if never."""
    for need in folder.unfinished_needs(runs):
        # another runner's may have finished since it was asked
        soon = need.path in paths or need.state in (RUNNING, FINISHED)
        return False if soon else FAILED
    return True


def _stop_all(jobs: list[Any], noted: list[int]) -> None:
    """SIGTERM for each, and the end of all; a second signal waits no longer."""
    for job in jobs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(job.job_id), signal.SIGTERM)
    before = len(noted)
    while any(not job.done() for job in jobs) and len(noted) == before:
        time.sleep(POLL_SECONDS)


def _end(
    folder: RunFolder,
    job: Any,
    raised: Exception | None,
    ended: dict[str, list[RunFolder]],
) -> None:
    """Note the end of a run, and print it; of a failure the end of the log, too."""
    folder.forget()
    state = folder.state if folder.state in ended else FAILED
    ended[state].append(folder)
    of_another = ": another process trains it" * (state == RUNNING)
    print(f"{state:8} {folder.path}{of_another}", flush=True)
    if state == FAILED:
        why = raised or job.exception()
        lines = [*folder.log.splitlines()[-TAIL_LINES:]]
        # submitit has the traceback of a process among words of its own
        said = re.findall(RAISED, str(why), re.M) or str(why).strip().splitlines()
        lines += said[-1:] if why else []
        print("\n".join(f"  | {line}" for line in lines if line), flush=True)


def _print_progress(
    folders: Sequence[RunFolder], over: int, began: float, at_start: int
) -> None:
    """How far all runs are, and the time that is left at the pace since the start."""
    minutes, runs = (time.monotonic() - began) / 60, len(folders)
    done, total = _updates_of(folders), sum(each.facts["updates"] for each in folders)
    new = done - at_start
    left = f"{minutes * (total - done) / new:,.0f}" if new else "?"
    line = f"{minutes:,.0f} min: {over} of {runs} runs, {done:,} of {total:,} updates"
    print(f"{line}, about {left} min left", flush=True)


def _updates_of(folders: Sequence[RunFolder]) -> int:
    return sum(RunFolder(each.path).updates_done for each in folders)


def submit_all(
    folders: Sequence[RunFolder], runs: Path, gpus: int, options: Mapping[str, str]
) -> None:
    """Submit every folder to Slurm, each after those that it needs, as for ``run_all``.

    Args:
        gpus: that each takes.
        options: sbatch's, by name; ``time`` in minutes.
    """
    if shutil.which("sbatch") is None:
        raise ValueError("--cluster slurm: there is no sbatch on this machine")
    own = dict(options)
    minutes = own.pop("time", "60")
    if not minutes.isdecimal():
        raise ValueError(f"--slurm time must be minutes, got {minutes}")
    executor = AutoExecutor(
        runs / "submitit", cluster="slurm", slurm_max_num_timeout=MOST_REQUEUES
    )
    given = {"timeout_min": int(minutes), "slurm_signal_delay_s": SIGNAL_DELAY_SECONDS}
    environment, device = {"CUDA_VISIBLE_DEVICES": ""}, "CPUs of Slurm"
    if gpus:
        given["gpus_per_node"] = gpus
        environment, device = {}, f"{gpus} GPUs of Slurm"
    executor.update_parameters(**given)
    jobs: dict[Path, str] = {}
    for folder in folders:
        more = {"requeue": True, **own}
        for need in folder.unfinished_needs(runs):
            if (job := jobs.get(need.path) or need.job) is None:
                why = f"needs {need.path}, which is neither finished nor submitted"
                raise ValueError(f"{folder.path} {why}")
            more["dependency"] = f"{more.get('dependency', 'afterok')}:{job}"
            # else it stays pending for ever once a run that it needs has failed
            more["kill-on-invalid-dep"] = "yes"
        executor.update_parameters(
            slurm_job_name=folder.path.parent.name, slurm_additional_parameters=more
        )
        try:
            job = executor.submit(Job(folder.path, runs, environment, device))
        except (FailedJobError, FailedSubmissionError) as error:
            why = " ".join(str(error).split())
            raise ValueError(f"sbatch: {folder.path}: {why}") from error
        jobs[folder.path] = job.job_id
        folder.append(SUBMITTED, job=job.job_id)
        print(f"submitted {folder.path}: job {job.job_id}")


def is_queued(job: str) -> bool:
    """Whether Slurm still has this job; False where there is no Slurm.

    ValueError where Slurm does not answer: the run may be trained already.
    """
    if shutil.which("squeue") is None:
        return False
    # such a variable filters jobs, as --states does, or the list's form
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SQUEUE_")}
    words = ["squeue", "--noheader", "--jobs", job]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode and "invalid job id" not in done.stderr.lower():
        why = f"{done.stderr.strip()}; run the same command when Slurm answers"
        raise ValueError(f"squeue --jobs {job}: {why}")
    return done.returncode == 0 and bool(done.stdout.strip())
