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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from ..data.fingerprints import mark_of
from ..installation import PACKAGE
from ..training.exit_code import EXIT_RESUMABLE, ended_by
from ..training.processes import handling, set_up_logging
from .errors import ReproduceError
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
# between Slurm's signal and the time limit, for a checkpoint
SIGNAL_DELAY_SECONDS = 120
MOST_REQUEUES = 1000  # of a job that its time limit ends
FOREVER_MINUTES = 60 * 24 * 365
TAIL_LINES = 12
RAISED = rf"^{PACKAGE.name}\.[\w.]+: (.*)"  # the end of a traceback


class RunFailed(Exception):
    """A run has ended with another exit code than 0."""


class Job:
    """What submitit calls: the command of a run, in its folder.

    Args:
        folder: of a prepared run.
        runs: the folder of all runs.
        environment: of the command, on top of the job's.
        device: where it runs, for the record.
        in_process: train in this process, without one of its own.
    """

    _child: subprocess.Popen[bytes] | None = None
    _stopped = False

    def __init__(
        self,
        folder: Path,
        runs: Path,
        environment: dict[str, str],
        device: str,
        in_process: bool,
    ) -> None:
        self.folder, self.runs, self.environment = folder, runs, environment
        self.device = device
        self.in_process = in_process

    def __call__(self) -> None:
        """Run it to its end.

        Raises:
            RunFailed: it has ended otherwise, or was stopped.
            ReproduceError: the run is not there, starts from other weights, or its
                data were replaced.
        """
        run = RunFolder(self.folder)
        # from here on: submitit itself passes SIGTERM over
        signals = {} if self.in_process else {signal.SIGTERM: self._stop}
        with run.lock(), handling(signals):
            # Slurm runs a job that waits for one it has forgotten
            for need in run.unfinished_needs(self.runs):
                raise ReproduceError(
                    f"{run.path} needs {need.path}: it is not finished"
                )
            if why := run.other_data():
                raise ReproduceError(why)
            start = run.facts["start"]
            weights = run.weights_at_start()
            run.append(
                BEGAN,
                started=time.time(),
                device=self.device,
                machine=machine(),
                commit=commit(),
                versions=versions(),
                weights=weights,
                mark=mark_of(self.folder / start) if start else None,
            )
            self._began = time.monotonic()
            with (self.folder / LOG).open("ab") as log:
                command = run.facts["command"]
                code = EXIT_RESUMABLE if self._stopped else self._run(command, log)
            why = "" if code else run.other_data()
            self._note_end(code or int(bool(why)))
        if why:
            raise ReproduceError(why)
        if code:
            raise RunFailed(f"{self.folder}: ended by {ended_by(code)}")

    def checkpoint(self) -> Any:
        """Called by submitit before a time limit, or where Slurm takes the machine."""
        from submitit.helpers import DelayedSubmission

        self._stop(signal.SIGTERM)
        if self._child is None:
            return DelayedSubmission(self)
        # the handler has interrupted a wait, whose lock it must not ask for
        ended = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        signalled = ended.si_code != os.CLD_EXITED
        self._note_end(-ended.si_status if signalled else ended.si_status)
        return DelayedSubmission(self)

    def _run(self, command: Sequence[str], log: Any) -> int:
        if self.in_process:
            return _in_this_process(command, self.folder, log)
        path = os.pathsep.join(
            filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH")))
        )
        environment = {**os.environ, **self.environment, "PYTHONPATH": path}
        # of its own group: the signals of a terminal reach the runner alone; what ends
        # the job waits until there is a child to hand it on to
        held = (signal.SIGTERM, signal.SIGUSR2)
        signal.pthread_sigmask(signal.SIG_BLOCK, held)
        try:
            self._child = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment | {"PYTHONUNBUFFERED": "1"},
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
        if self._child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGTERM)

    def _note_end(self, code: int) -> None:
        seconds = time.monotonic() - self._began
        RunFolder(self.folder).append(ENDED, seconds=seconds, exit_code=code)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}


def _in_this_process(command: Sequence[str], folder: Path, log: Any) -> int:
    """The exit code of ``python -m MODULE ARGUMENTS``, its output in the log."""
    _, _, module, *arguments = command
    before, place, kept = sys.argv, os.getcwd(), [os.dup(number) for number in (1, 2)]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
        os.chdir(folder)
        sys.argv = [module, *arguments]
        with os.fdopen(os.dup(1), "w") as out, contextlib.redirect_stdout(out):
            set_up_logging(anew=True)
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        os.write(2, traceback.format_exc().encode())
        return 1
    finally:
        os.chdir(place)
        sys.argv = before
        logging.getLogger().handlers.clear()
        for number, old in zip((1, 2), kept, strict=True):
            os.dup2(old, number)
            os.close(old)
    return 0


class Slots:
    """Places for runs on this machine: groups of its GPUs, or shares of its cores.

    Args:
        gpus: that a run takes; 0 trains on the CPU.
        jobs: runs at once; by default one a group of GPUs, or one on the CPU. More runs
            than groups share them.

    Raises:
        ReproduceError: there are fewer GPUs than one run takes.
    """

    def __init__(self, gpus: int, jobs: int | None) -> None:
        if gpus:
            there = visible_gpus()
            if len(there) < gpus:
                raise ReproduceError(
                    f"--gpus {gpus}: this machine has {len(there)}; 0 trains on the "
                    "CPU, and the sequences of an update stay the same"
                )
            starts = range(0, len(there) - gpus + 1, gpus)
            groups = [",".join(there[start : start + gpus]) for start in starts]
            self.free = [groups[i % len(groups)] for i in range(jobs or len(groups))]
        else:
            self.free = [""] * (jobs or 1)
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
        environment = {**os.environ, **self.environment(group)}
        cpu = f"CPU, {environment.get('OMP_NUM_THREADS')} threads"
        return f"{f'GPU {group}' if group else cpu}, {self.many} at once"


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
    checkpoint of each.

    Args:
        folders: of prepared runs, each after those that it needs.
        runs: the folder of all runs.
        slots: where they run.
        in_process: train in this process, one run after the other.
        interval: seconds between two lines of progress.

    Returns:
        "finished", "interrupted" and "failed": the folders.

    Raises:
        KeyboardInterrupt: a signal came, and all have ended.
    """
    from submitit import AutoExecutor

    cluster = "debug" if in_process else "local"
    executor = AutoExecutor(runs / "submitit", cluster=cluster)
    executor.update_parameters(timeout_min=FOREVER_MINUTES)
    waiting, running = list(folders), {}
    ended: dict[str, list[RunFolder]] = {FINISHED: [], INTERRUPTED: [], FAILED: []}
    progress = Progress(folders, interval)
    with _noted() as noted:
        while (waiting or running) and not noted:
            for folder in list(waiting):
                ready = _readiness(folder, runs, [*waiting, *running])
                if ready == FAILED:
                    waiting.remove(folder)
                    ended[FAILED].append(folder)
                    print(f"failed   {folder.path}: what it needs is not finished")
                elif ready and slots.free:
                    waiting.remove(folder)
                    group = slots.free.pop(0)
                    environment = slots.environment(group)
                    job = Job(
                        folder.path, runs, environment, slots.device(group), in_process
                    )
                    print(f"started  {folder.path} on {job.device}", flush=True)
                    running[folder] = (_submit(executor, job), group)
            for folder, (job, group) in list(running.items()):
                # submitit runs a job of this process whenever it is asked for its end
                raised = job.exception() if in_process else None
                if in_process or job.done():
                    del running[folder]
                    slots.free.append(group)
                    _tell_end(folder, job, raised, ended)
            progress.tell(sum(map(len, ended.values())))
            time.sleep(0 if in_process else POLL_SECONDS)
        if noted:
            print(f"interrupted: stopping {len(running)} runs", flush=True)
        _stop_all([job for job, _ in running.values()], noted)
    if noted:
        raise KeyboardInterrupt
    return ended


def _readiness(folder: RunFolder, runs: Path, ours: Sequence[RunFolder]) -> str | bool:
    """Whether a run can start; ``FAILED`` if it never will."""
    paths = [each.path for each in ours]
    for need in folder.unfinished_needs(runs):
        return False if need.path in paths or need.state == RUNNING else FAILED
    return True


def _submit(executor: Any, job: Job) -> Any:
    """A job whose processes leave the terminal's signals to this one."""
    ignored = {number: signal.SIG_IGN for number in (signal.SIGINT, signal.SIGHUP)}
    with handling(ignored):
        return executor.submit(job)


def _stop_all(jobs: list[Any], noted: list[int]) -> None:
    """SIGTERM for each, and the end of all; a second signal waits no longer."""
    for job in jobs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(job.job_id), signal.SIGTERM)
    before = len(noted)
    while any(not job.done() for job in jobs) and len(noted) == before:
        time.sleep(POLL_SECONDS)


def _tell_end(
    folder: RunFolder,
    job: Any,
    raised: Exception | None,
    ended: dict[str, list[RunFolder]],
) -> None:
    folder.forget()
    state = folder.state if folder.state in ended else FAILED
    ended[state].append(folder)
    print(f"{state:8} {folder.path}", flush=True)
    if state == FAILED:
        why = raised or job.exception()
        lines = [*folder.log.splitlines()[-TAIL_LINES:]]
        # submitit has the traceback of a process among words of its own
        said = re.findall(RAISED, str(why), re.M) or str(why).strip().splitlines()
        lines += said[-1:] if why else []
        print("\n".join(f"  | {line}" for line in lines if line), flush=True)


@contextlib.contextmanager
def _noted() -> Iterator[list[int]]:
    """Signals to end that have come; an exception would leave children behind."""
    noted: list[int] = []
    note = dict.fromkeys(STOPPING, lambda number, frame: noted.append(number))
    with handling(note):
        yield noted


class Progress:
    """Now and then a line on how far all runs are."""

    def __init__(self, folders: Sequence[RunFolder], interval: float) -> None:
        self._folders, self._interval = [each.path for each in folders], interval
        self._total = sum(each.facts["updates"] for each in folders)
        self._at_start = self._done()
        self._began = self._told = time.monotonic()

    def _done(self) -> int:
        return sum(RunFolder(path).updates_done for path in self._folders)

    def tell(self, over: int) -> None:
        """Print the line, if it is time to: ``over`` runs have ended."""
        now = time.monotonic()
        if now - self._told < self._interval:
            return
        self._told, done, elapsed = now, self._done(), now - self._began
        new = done - self._at_start
        left = f"{elapsed * (self._total - done) / new / 60:,.0f}" if new else "?"
        print(
            f"{elapsed / 60:,.0f} min: {over} of {len(self._folders)} runs, {done:,} "
            f"of {self._total:,} updates, about {left} min left",
            flush=True,
        )


def submit_all(
    folders: Sequence[RunFolder], runs: Path, gpus: int, options: Mapping[str, str]
) -> None:
    """Submit every folder to Slurm, each after those that it needs.

    Args:
        folders: of prepared runs, each after those that it needs.
        runs: the folder of all runs.
        gpus: that each takes.
        options: submitit's slurm_NAME, or sbatch's, by name.

    Raises:
        ReproduceError: Slurm is not there or refuses a job.
    """
    from submitit import AutoExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    if shutil.which("sbatch") is None:
        raise ReproduceError("--cluster slurm: there is no sbatch on this machine")
    own = dict(options)
    minutes = own.pop("time", "60")
    if not minutes.isdecimal():
        raise ReproduceError(f"--slurm time={minutes}; allowed: minutes")
    jobs: dict[Path, str] = {}
    for folder in folders:
        unfinished = folder.unfinished_needs(runs)
        after = [jobs.get(each.path) or each.job for each in unfinished]
        if None in after:
            raise ReproduceError(
                f"{folder.path} needs {unfinished[after.index(None)].path}, which is "
                "neither finished nor submitted"
            )
        more = {"requeue": True, **own}
        if after:  # else it stays pending for ever once a run that it needs has failed
            more["dependency"] = f"afterok:{':'.join(map(str, after))}"
            more["kill-on-invalid-dep"] = "yes"
        executor = AutoExecutor(
            runs / "submitit", cluster="slurm", slurm_max_num_timeout=MOST_REQUEUES
        )
        executor.update_parameters(
            timeout_min=int(minutes),
            slurm_signal_delay_s=SIGNAL_DELAY_SECONDS,
            slurm_job_name=folder.path.parent.name,
            slurm_additional_parameters=more,
            **({"gpus_per_node": gpus} if gpus else {}),
        )
        environment = {} if gpus else {"CUDA_VISIBLE_DEVICES": ""}
        device = f"{gpus} GPUs of Slurm" if gpus else "CPUs of Slurm"
        try:
            job = executor.submit(Job(folder.path, runs, environment, device, False))
        except (FailedJobError, FailedSubmissionError) as error:
            why = " ".join(str(error).split())
            raise ReproduceError(f"sbatch: {folder.path}: {why}") from error
        jobs[folder.path] = job.job_id
        folder.append(SUBMITTED, job=job.job_id)
        print(f"submitted {folder.path}: job {job.job_id}")


def is_queued(job: str) -> bool:
    """Whether Slurm still has this job; False where there is no Slurm.

    Raises:
        ReproduceError: Slurm does not answer: the run may be trained already.
    """
    if shutil.which("squeue") is None:
        return False
    # such a variable filters jobs, as --states does, or the list's form
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SQUEUE_")}
    done = subprocess.run(
        ["squeue", "--noheader", "--jobs", job],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode and "invalid job id" not in done.stderr.lower():
        raise ReproduceError(
            f"squeue --jobs {job}: {done.stderr.strip()}; run the same command when "
            "Slurm answers"
        )
    return done.returncode == 0 and bool(done.stdout.strip())
