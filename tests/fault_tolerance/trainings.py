"""fairseq-train in real processes, forked off one that has imported fairseq already."""

import multiprocessing
import os
import re
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tests.fairseq_tools.conftest import logged, training_arguments
from tests.paths import USER_DIR

from .accidents import ACCIDENTS

SECONDS = 240  # a crowded machine, not a measured time
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["fairseq_cli.train", "fairseq_transnormer", "tests.fault_tolerance.accidents"]
)


def _train(arguments: list[str], log: str, accident: tuple | None) -> None:
    """What a process runs: fairseq-train as its command does."""
    import fairseq_cli.train

    os.setsid()
    multiprocessing.set_start_method("fork", force=True)  # not the test's
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["fairseq-train", *arguments]
    if "--fp16" in arguments:  # fairseq asks for a GPU's number
        torch.cuda.current_device = lambda: None
    if accident:
        name, *details = accident
        ACCIDENTS[name](*details)
    fairseq_cli.train.cli_main()


@dataclass
class Training:
    """A training run of one or more workers, each a process group with a log.

    Attributes:
        data: the folder of binary data.
        save_dir: checkpoints; logs and the workers' meeting place lie beside it.
        workers: how many.
        options: further options of fairseq-train, with values.
        flags: and those without.
    """

    data: Path
    save_dir: Path
    workers: int = 1
    options: dict = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    meeting: str | None = None  # of the workers; a file of each start's own
    processes: list = field(default_factory=list)
    _starts: int = 0

    def start(self, accident: tuple | None = None, at_worker: int = 0) -> None:
        """Start all workers; ``accident`` (a name and details) happens to one."""
        self._starts += 1
        folder = self.save_dir.parent
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.save_dir.name}-{self._starts}"
        self.logs = [folder / f"{name}-{rank}.log" for rank in range(self.workers)]
        self.processes = []
        for rank, log in enumerate(self.logs):
            arguments = self._arguments(rank, folder / f"{name}.meeting")
            happens = accident if rank == at_worker else None
            process = CONTEXT.Process(
                target=_train, args=(arguments, str(log), happens)
            )
            process.start()
            self.processes.append(process)

    def _arguments(self, rank: int, meeting: Path) -> list[str]:
        options = {
            "batch-size": 4, "max-update": 24, "save-interval-updates": 8,
            "keep-interval-updates": 2, "tokens-per-sample": 32, "num-workers": 0,
            **self.options,
        }  # fmt: skip
        arguments = [
            str(self.data),
            *training_arguments("transnormer_t2_tiny", self.save_dir, **options),
            *self.flags,
            *("--user-dir", str(USER_DIR), "--no-epoch-checkpoints", "--cpu"),
        ]
        if self.workers > 1:
            arguments += [
                *("--distributed-world-size", str(self.workers)),
                *("--distributed-rank", str(rank), "--distributed-no-spawn"),
                *("--distributed-init-method", self.meeting or f"file://{meeting}"),
                *("--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"),
            ]
        return arguments

    def wait(self) -> list[int]:
        """The exit codes, when all have ended; negative for a signal."""
        deadline = time.monotonic() + SECONDS
        for process in self.processes:
            process.join(max(0, deadline - time.monotonic()))
        codes = [process.exitcode for process in self.processes]
        self.kill()
        assert None not in codes, f"still running: {codes}\n{self.text()}"
        return codes

    def wait_for(self, text: str, worker: int = 0) -> None:
        """Wait until a worker's log has this text."""
        deadline = time.monotonic() + SECONDS
        log = self.logs[worker]
        while not (log.exists() and text in log.read_text()):
            assert self.processes[worker].exitcode is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.02)

    def send(self, number: int, worker: int = 0) -> None:
        """Send a signal to all processes of a worker."""
        os.killpg(self.processes[worker].pid, number)

    def kill(self) -> None:
        """SIGKILL to what is left."""
        for process in self.processes:
            if process.exitcode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.join()

    def run(self, accident: tuple | None = None, at_worker: int = 0) -> list[int]:
        """Start and wait; the exit codes."""
        self.start(accident, at_worker)
        return self.wait()

    def text(self) -> str:
        """The logs of the last start."""
        return "\n".join(log.read_text() for log in self.logs if log.exists())

    def losses(self) -> dict[int, tuple]:
        """Update -> loss and gradient norm, in the last start's log."""
        return {
            int(record["num_updates"]): (record["loss"], record["gnorm"])
            for record in logged(self.logs[0].read_text(), "train_inner")
        }

    def validations(self) -> dict[int, str]:
        """Update -> validation loss, in the last start's log."""
        return {
            int(record["valid_num_updates"]): record["valid_loss"]
            for record in logged(self.logs[0].read_text(), "valid")
        }

    def went_on_at(self) -> int:
        """The update that the last start's checkpoint was of."""
        found = re.search(r"Loaded checkpoint .* @ (\d+) updates", self.text())
        return int(found[1]) if found else 0

    def state(self, name: str = "checkpoint_last.pt") -> dict:
        return torch.load(self.save_dir / name, weights_only=True)

    def updates_of(self, name: str = "checkpoint_last.pt") -> int:
        return self.state(name)["optimizer_history"][-1]["num_updates"]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def line_with(text: str, part: str) -> str:
    """The line that has ``part``, without time and logger."""
    found = [line for line in text.splitlines() if part in line]
    assert found, f"nothing says {part!r}:\n{text}"
    return re.sub(r"^([\d: -]+\| \w+ \| [\w.]+ \| |\w+:[\w.]+:)", "", found[0])
