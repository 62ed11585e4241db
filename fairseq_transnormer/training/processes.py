"""The processes of a training: how they are started, and told of signals."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .config import Configuration, ConfigurationError
from .exit_code import EXIT_RESUMABLE, RESUMABLE_FILE

# signals that end a training after a checkpoint, and as what torchrun hands them on
STOPPING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
SIGNALS = dict.fromkeys(STOPPING, signal.SIGTERM) | {signal.SIGINT: signal.SIGINT}


class Workers(NamedTuple):
    """The processes of a training: of ``nodes`` machines, with ``gpus`` each.

    Where these are 0, ``on_cpu`` processes of each machine train on the CPU.
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


def start_of(
    workers: Workers, rendezvous: str | None, name: str
) -> tuple[Configuration, list[str]]:
    """How these workers are started on this machine.

    Args:
        workers: that are wanted.
        rendezvous: HOST:PORT where torchrun's machines meet.
        name: of the run, by which they find each other.

    Returns:
        dotted keys of the configuration, with what these processes need; and torchrun's
        arguments up to the file, none where this process trains or starts the others.

    Raises:
        ConfigurationError: several machines would not find each other.
    """
    if rendezvous is not None and workers.nodes == 1:
        raise ConfigurationError(f"--rendezvous {rendezvous}; allowed: with --nodes 2")
    group = "distributed_training"
    settings: Configuration = {f"{group}.distributed_world_size": workers.all}
    meeting = ["--standalone"]
    if workers.nodes > 1 and rendezvous is not None:
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", rendezvous]
        meeting += ["--rdzv-id", name, "--nnodes", str(workers.nodes)]
    elif workers.nodes > 1:
        step = [os.environ.get(f"SLURM_STEP_NUM_{of}") for of in ("NODES", "TASKS")]
        if not workers.gpus or step != [str(workers.nodes)] * 2:
            raise ConfigurationError(
                f"--nodes {workers.nodes} needs --rendezvous HOST:PORT, or Slurm's "
                "step with one task a node (scripts/slurm/train.sbatch)"
            )
        port = int(os.environ.get("MASTER_PORT", "29500"))
        return settings | {f"{group}.distributed_port": port}, []
    elif workers.gpus or workers.each == 1:
        return settings, []
    if not workers.gpus:
        # fairseq's pytorch_ddp wants GPUs
        settings[f"{group}.distributed_backend"] = "gloo"
        settings[f"{group}.ddp_backend"] = "legacy_ddp"
    processes = ["--nproc-per-node", str(workers.each), "-m", __package__]
    return settings, [*meeting, *processes]


def set_up_logging(*, anew: bool = False) -> None:
    """As fairseq's command does before it imports fairseq; ``anew`` after that."""
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=os.environ.get("LOGLEVEL", "INFO").upper(),
        stream=sys.stdout,
        force=anew,
    )


def run_torchrun(arguments: Sequence[str]) -> int:
    """Train in the processes of torchrun with these arguments; returns its exit code.

    torchrun ends with 1 whatever its workers end with: they leave a note
    (``exit_code``). It dies of signals that should end a training after a checkpoint,
    and gets SIGTERM for them.
    """
    # the program of that name may be another Python's
    command = [sys.executable, "-m", "torch.distributed.run", *arguments]
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
    """A process that ends where the block raises, with ``Popen``'s options.

    ``signals``, received -> handed on, are handed on to it from its start on.
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
