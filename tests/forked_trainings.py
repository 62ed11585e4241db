"""fairseq's commands in real processes, forked off one that has imported fairseq.

To start Python and import fairseq takes longer than most trainings of the tests. The
process that all are forked off (multiprocessing's fork server) is started by the first.
"""

import importlib
import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import kept_configurations
from tests.paths import USER_DIR

PACKAGE = "fairseq_transnormer"
SECONDS = 900  # a crowded machine, not a measured time
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("fairseq_cli.train", "fairseq_cli.hydra_train"),
        "fairseq_transnormer.training.main",
        "torch._dynamo",  # by an optimizer as soon as it is made
        *("tests.training.accidents", "tests.workers.recording"),
        "tests.kept_configurations",
    ]
)


@dataclass(frozen=True)
class Call:
    """A function of a module that a process calls before its command begins."""

    module: str
    function: str
    arguments: tuple = ()

    def __call__(self) -> None:
        getattr(importlib.import_module(self.module), self.function)(*self.arguments)


def run_command(
    name: str,
    arguments: Sequence[str],
    log: str,
    folder: str | None,
    environment: dict,
    before: Sequence[Call],
    kept: Path,
) -> None:
    """What a process is: the command, in a group of its own, with a log."""
    import torch
    from fairseq.logging import progress_bar

    os.setsid()
    multiprocessing.set_start_method("fork", force=True)  # as without the fork server
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    torch.set_num_threads(1)
    if folder:
        os.chdir(folder)
    os.environ |= environment
    sys.argv = [f"fairseq-{name.replace('_', '-')}", *arguments]
    if "--fp16" in arguments:  # fairseq asks for a GPU's number, and at an overflow
        torch.cuda.current_device = lambda: None  # moves a zero there
        torch.Tensor.cuda = lambda tensor: tensor
    kept_configurations.keep(kept)
    for call in before:
        call()
    try:
        if name.startswith(PACKAGE):
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        elif name.endswith(".py"):
            sys.argv[0] = name
            runpy.run_path(name, run_name="__main__")
        else:
            importlib.import_module(f"fairseq_cli.{name}").cli_main()
    finally:  # at exit, which a fork of multiprocessing leaves out
        progress_bar._close_writers()


def start_command(
    name: str,
    arguments: Sequence,
    log: Path,
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
    before: Sequence[Call] = (),
) -> multiprocessing.Process:
    """Start ``fairseq-NAME`` with the plugin in a folder; its output goes to ``log``.

    ``hydra_train`` is given the plugin by its configuration. Or a script, NAME.py, or a
    module of this package, such as fairseq_transnormer.training.
    """
    words = [*map(str, arguments)]
    if name != "hydra_train" and not name.endswith(".py") and PACKAGE not in name:
        words += ["--user-dir", str(USER_DIR)]
    where = (str(log), str(folder) if folder else None)
    process = CONTEXT.Process(
        target=run_command,
        args=(
            *(name, words, *where, environment or {}, before),
            kept_configurations.folder(),
        ),
    )
    process.start()
    return process


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for(processes: Sequence[multiprocessing.Process]) -> list[int | None]:
    """The exit codes, negative for a signal; None for what was still running."""
    deadline = time.monotonic() + SECONDS
    for process in processes:
        process.join(max(0, deadline - time.monotonic()))
    codes = [process.exitcode for process in processes]
    kill(processes)
    return codes


def kill(processes: Sequence[multiprocessing.Process]) -> None:
    """SIGKILL to what is left."""
    for process in processes:
        if process.exitcode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()


@dataclass
class Training:
    """fairseq-train in one or more workers, each a process group with a log.

    Attributes:
        data: the folder of binary data.
        save_dir: checkpoints; logs and the workers' meeting place lie beside it.
        workers: how many.
        options: further options of fairseq-train, with values; None takes one away.
        flags: and those without.
        arch: the model.
        meeting: of the workers, as fairseq has it; a file of each start's own.
    """

    data: Path
    save_dir: Path
    workers: int = 1
    options: dict = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    arch: str = "transnormer_t2_tiny"
    meeting: str | None = None
    _starts: int = 0
    processes: list = field(default_factory=list)

    # of every training of a kind
    DEFAULTS = {}

    def start(self) -> None:
        """Start all workers."""
        self._starts += 1
        self.save_dir.parent.mkdir(parents=True, exist_ok=True)
        self.logs = [self._beside(f"{rank}.log") for rank in range(self.workers)]
        self.processes = [
            start_command(
                "train",
                self.arguments(rank),
                log,
                environment=self.environment(rank),
                before=self.before(rank),
            )
            for rank, log in enumerate(self.logs)
        ]

    def _beside(self, name: str) -> Path:
        return self.save_dir.parent / f"{self.save_dir.name}-{self._starts}-{name}"

    def arguments(self, rank: int) -> list[str]:
        """Of a worker's fairseq-train."""
        options = self.DEFAULTS | self.options
        words = training_arguments(self.arch, self.save_dir, **options)
        return [str(self.data), *words, *self.flags, *self.parallel(rank)]

    def parallel(self, rank: int) -> list[str]:
        """What tells a worker of the others."""
        if self.workers == 1:
            return []
        meeting = self.meeting or f"file://{self._beside('meeting')}"
        return [
            *("--distributed-world-size", str(self.workers)),
            *("--distributed-rank", str(rank), "--distributed-no-spawn"),
            *("--distributed-init-method", meeting),
            *("--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"),
        ]

    def environment(self, rank: int) -> dict[str, str]:
        """What a worker has beside the variables of the tests."""
        return {}

    def before(self, rank: int) -> list[Call]:
        """What happens in a worker before it trains."""
        return []

    def wait(self) -> list[int]:
        """The exit codes, when all have ended; negative for a signal."""
        codes = wait_for(self.processes)
        assert None not in codes, f"still running: {codes}\n{self.text()}"
        return codes

    def kill(self) -> None:
        """SIGKILL to what is left."""
        kill(self.processes)

    def run(self) -> list[int]:
        """Start and wait; the exit codes."""
        self.start()
        return self.wait()

    def text(self) -> str:
        """The logs of the last start."""
        return "\n".join(log.read_text() for log in self.logs if log.exists())


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def training_arguments(arch: str, save_dir: Path, **options) -> list[str]:
    """Flags of a short training run on the CPU; ``options`` come on top.

    None leaves an option out, True gives it without a value.
    """
    flags = {
        "task": "language_modeling",
        "arch": arch,
        "optimizer": "adam",
        "adam-betas": "(0.9, 0.98)",
        "lr": 0.003,
        "lr-scheduler": "inverse_sqrt",
        "warmup-updates": 20,
        "tokens-per-sample": 64,
        "batch-size": 8,
        "required-batch-size-multiple": 1,
        "max-update": 40,
        "seed": 1,
        "save-dir": save_dir,
        "log-format": "json",
        "log-interval": 1,
        "num-workers": 0,
    }
    if arch.startswith("roberta"):
        flags |= {"task": "masked_lm", "criterion": "masked_lm"}
    flags |= {key.replace("_", "-"): value for key, value in options.items()}
    words = ["--cpu"]
    for key, value in flags.items():
        if value is not None:
            words += [f"--{key}"] if value is True else [f"--{key}", str(value)]
    return words


def logged(text: str, kind: str) -> list[dict]:
    """The JSON records of ``kind`` (train_inner, valid, ...) in a fairseq log."""
    marker = f"| INFO | {kind} | "
    lines = [line.split(marker)[1] for line in text.splitlines() if marker in line]
    return [json.loads(line) for line in lines]
