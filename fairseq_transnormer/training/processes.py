"""The processes of a training: this one, by fairseq alone, or those of torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import set_up_logging
from .config import Configuration, ConfigurationError
from .exit_code import EXIT_RESUMABLE, RESUMABLE_FILE

# signals that end a training after a checkpoint, and as what torchrun hands them on
SIGNALS = {
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGUSR1: signal.SIGTERM,
    signal.SIGUSR2: signal.SIGTERM,
    signal.SIGINT: signal.SIGINT,
}
SLURM_PORT = "29500"
# what torchrun's processes run, with a configuration's file
MODULE = __package__


@dataclass(frozen=True)
class Workers:
    """The processes of a training.

    Attributes:
        nodes: machines.
        gpus: of each, one for a process; 0 trains on the CPU.
        on_cpu: processes of each machine, on the CPU.
    """

    nodes: int
    gpus: int
    on_cpu: int = 1

    @property
    def each(self) -> int:
        """Processes of a machine."""
        return self.gpus or self.on_cpu

    @property
    def all(self) -> int:
        """Processes of all machines together: the world size."""
        return self.nodes * self.each


@dataclass(frozen=True)
class Start:
    """How the processes are started.

    Attributes:
        settings: dotted keys of the configuration, with what these processes need.
        torchrun: its command, up to the file; empty where this process trains, or
            fairseq starts one a GPU.
    """

    settings: Configuration
    torchrun: Sequence[str] = ()


def start_of(workers: Workers, rendezvous: str | None, name: str) -> Start:
    """How these workers are started on this machine.

    Args:
        workers: that are wanted.
        rendezvous: HOST:PORT where torchrun's machines meet.
        name: of the run, by which they find each other.

    Raises:
        ConfigurationError: several machines would not find each other.
    """
    if rendezvous is not None and workers.nodes == 1:
        raise ConfigurationError(
            f"--rendezvous {rendezvous} with --nodes 1; allowed: with --nodes 2, 3, ..."
        )
    settings: Configuration = {
        "distributed_training.distributed_world_size": workers.all
    }
    meeting = ["--standalone"]
    if workers.nodes > 1:
        if workers.gpus and rendezvous is None and _slurm_step_has(workers.nodes):
            port = int(os.environ.get("MASTER_PORT", SLURM_PORT))
            return Start(settings | {"distributed_training.distributed_port": port})
        if rendezvous is None:
            raise ConfigurationError(
                f"--nodes {workers.nodes} needs --rendezvous HOST:PORT, or a step of "
                f"Slurm with {workers.nodes} tasks, one a node "
                "(scripts/slurm/train.sbatch)"
            )
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", rendezvous]
        meeting += ["--rdzv-id", name, "--nnodes", str(workers.nodes)]
    elif workers.gpus or workers.each == 1:
        return Start(settings)
    if not workers.gpus:
        # fairseq's pytorch_ddp wants GPUs
        settings["distributed_training.distributed_backend"] = "gloo"
        settings["distributed_training.ddp_backend"] = "legacy_ddp"
    processes = ["--nproc-per-node", str(workers.each), "-m", MODULE]
    return Start(settings, ["torchrun", *meeting, *processes])


def _slurm_step_has(tasks: int) -> bool:
    names = ("SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS")
    return all(os.environ.get(name) == str(tasks) for name in names)


def train(configuration: Configuration) -> None:
    """Train in this process, or in those that fairseq starts from it, to the end."""
    from omegaconf import OmegaConf

    from .main import main
    from .workers import call_main

    cfg = OmegaConf.create(configuration)
    OmegaConf.set_struct(cfg, True)
    call_main(cfg, main)


def train_file(path: Path) -> None:
    """``train`` by a whole composed configuration, as YAML."""
    set_up_logging()
    from omegaconf import OmegaConf

    train(OmegaConf.to_container(OmegaConf.load(path)))


def run_torchrun(torchrun: Sequence[str], file: Path) -> int:
    """Train by a file in torchrun's processes; returns its exit code.

    torchrun ends with 1 whatever its workers end with: they leave a note
    (``exit_code``). It dies of signals that should end a training after a checkpoint,
    and gets SIGTERM for them.
    """
    # the program of that name may be another Python's
    command = [sys.executable, "-m", "torch.distributed.run", *torchrun[1:], str(file)]
    with tempfile.TemporaryDirectory() as notes:
        note = Path(notes) / "resumable"
        environment = {**os.environ, RESUMABLE_FILE: str(note)}
        with child_process(command, SIGNALS, env=environment) as process:
            code = process.wait()
        return EXIT_RESUMABLE if code and note.exists() else code


@contextmanager
def handling(
    handlers: Mapping[int, Callable[..., None] | signal.Handlers],
) -> Iterator[None]:
    """Signals have these handlers in the block, those before it after it.

    What the process ignores stays ignored: nohup's SIGHUP, and SIGINT of a shell's
    background jobs.
    """
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def child_process(
    command: Sequence[str], signals: Mapping[int, int], **options
) -> Iterator[subprocess.Popen]:
    """A process that is handed on what signals this one receives, from its start on.

    It is terminated, and waited for, where the block raises.

    Args:
        command: with its arguments.
        signals: received -> handed on.
        options: of ``subprocess.Popen``.
    """
    process, early = None, []

    def hand_on(received: int, frame: object) -> None:
        if process is None:
            early.append(received)
        else:
            process.send_signal(signals[received])

    with handling(dict.fromkeys(signals, hand_on)):
        process = subprocess.Popen(command, **options)
        for received in early:
            process.send_signal(signals[received])
        try:
            yield process
        except BaseException:
            process.terminate()
            process.wait()
            raise
