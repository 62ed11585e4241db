"""The processes of a training: how they start, and how they get signals."""

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

# signals that end a training after a checkpoint -> those that torchrun forwards
STOPPING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
SIGNALS = dict.fromkeys(STOPPING, signal.SIGTERM) | {signal.SIGINT: signal.SIGINT}


class Workers(NamedTuple):
    """The processes of a training: ``nodes`` machines with ``gpus`` GPUs each.

    If ``gpus`` is 0, ``on_cpu`` processes of each machine train on the CPU.
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
    """How to start workers on this machine.

    Args:
        workers: of the training.
        rendezvous: HOST:PORT where torchrun's machines connect.
        name: of the run, an identifier for the connection.

    Returns:
        dotted keys and values for the configuration, and torchrun's arguments before
        the file. There are none if this process trains or starts the others itself.

    Raises:
        ConfigurationError: several machines have no way to connect.
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
        # fairseq's pytorch_ddp needs GPUs
        settings[f"{group}.distributed_backend"] = "gloo"
        settings[f"{group}.ddp_backend"] = "legacy_ddp"
    processes = ["--nproc-per-node", str(workers.each), "-m", __package__]
    return settings, [*meeting, *processes]


def set_up_logging(*, anew: bool = False) -> None:
    """Set up logging as fairseq's command does; ``anew`` after importing fairseq."""
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=os.environ.get("LOGLEVEL", "INFO").upper(),
        stream=sys.stdout,
        force=anew,
    )


def run_torchrun(arguments: Sequence[str]) -> int:
    """Train in the processes of torchrun with these arguments; returns its exit code.

    torchrun ends with 1 for any exit code of its workers, so they leave a file
    (``exit_code``). Some signals that should end a training after a checkpoint end
    torchrun immediately; it gets SIGTERM instead.
    """
    # the program of that name may belong to another Python
    command = [sys.executable, "-m", "torch.distributed.run", *arguments]
    process, early = None, []

    def hand_on(received: int, frame: object) -> None:
        if process is None:
            early.append(received)
        else:
            process.send_signal(SIGNALS[received])

    with (
        tempfile.TemporaryDirectory() as notes,
        handling(dict.fromkeys(SIGNALS, hand_on)),
    ):
        note = Path(notes) / "resumable"
        environment = {**os.environ, RESUMABLE_FILE: str(note)}
        process = subprocess.Popen(command, env=environment)
        for received in early:
            process.send_signal(SIGNALS[received])
        code = process.wait()
        return EXIT_RESUMABLE if code and note.exists() else code


@contextmanager
def handling(
    handlers: Mapping[int, Callable[..., None] | signal.Handlers],
) -> Iterator[None]:
    """Set handlers of signals for a block, and restore the earlier ones after it.

    Ignored signals stay ignored, such as SIGHUP under nohup and SIGINT in a shell's
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
