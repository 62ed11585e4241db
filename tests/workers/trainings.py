"""fairseq-train in several real processes, as torchrun starts them, and their results.

The processes are forked off one that has imported fairseq.
"""

import json
import multiprocessing
import os
import re
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tests.fairseq_tools.conftest import logged, training_arguments
from tests.paths import USER_DIR

SECONDS = 900  # a crowded machine, not a measured time
SEQUENCES = 16  # of an update
BATCH = 4
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["fairseq_cli.train", "fairseq_transnormer", "tests.workers.recording"]
)


def _train(arguments: list[str], environment: dict, steps: Path, log: Path) -> None:
    """What a process runs: fairseq-train as its command does."""
    import fairseq_cli.train

    from .recording import let_pytorch_ddp_take_cpus, record

    torch.set_num_threads(1)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ |= environment
    sys.argv = ["fairseq-train", *arguments]
    record(steps)
    let_pytorch_ddp_take_cpus()
    fairseq_cli.train.cli_main()


@dataclass
class Training:
    """A training run.

    Attributes:
        data: the folder of binary data.
        folder: for checkpoints, logs and records.
        arch: the model.
        workers: processes; each accumulates what fills an update.
        options: further options of fairseq-train, with values.
        flags: and those without.
    """

    data: Path
    folder: Path
    arch: str
    workers: int
    options: dict = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def save_dir(self) -> Path:
        return self.folder / "checkpoints"

    def arguments(self) -> list[str]:
        options = {
            "batch-size": BATCH, "update-freq": 0, "max-update": 12, "dropout": 0,
            "save-interval-updates": 8, **self.options,
        }  # fmt: skip
        parallel = {
            "distributed-world-size": self.workers,
            "distributed-backend": "gloo",
            "ddp-backend": "legacy_ddp",
        }
        if self.workers > 1:
            options = parallel | options
        given = training_arguments(self.arch, self.save_dir, **options)
        for name in [name for name, value in options.items() if value is None]:
            place = given.index(f"--{name}")
            del given[place : place + 2]
        return [str(self.data), *given, *self.flags, "--user-dir", str(USER_DIR)]

    def run(self) -> list[int]:
        """Start the workers and wait; their exit codes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        processes = []
        for rank in range(self.workers):
            environment = {"SEQUENCES_PER_UPDATE": str(SEQUENCES)}
            if self.workers > 1:
                environment |= meeting
                environment |= {"RANK": str(rank), "WORLD_SIZE": str(self.workers)}
            arguments = (self.arguments(), environment, self.steps_file, self.log)
            processes.append(CONTEXT.Process(target=_train, args=arguments))
            processes[-1].start()
        for process in processes:
            process.join(SECONDS)
            if process.exitcode is None:
                process.kill()
        return [process.exitcode for process in processes]

    @property
    def log(self) -> Path:
        return self.folder / "train.log"

    @property
    def steps_file(self) -> Path:
        return self.folder / "steps.jsonl"

    def steps(self, kind: str) -> list[dict]:
        """The recorded steps of this kind: train or valid."""
        steps = map(json.loads, self.steps_file.read_text().splitlines())
        return [step for step in steps if step["kind"] == kind]

    def updates(self) -> dict[int, dict]:
        """Update -> what it was."""
        return {step["update"]: step for step in self.steps("train")}

    def validations(self) -> dict[int, dict[str, float]]:
        """Update -> sums of the validation behind it."""
        sums: dict[int, dict[str, float]] = {}
        for step in self.steps("valid"):
            total = sums.setdefault(step["update"], {})
            for key in ("loss", "sample_size", "ntokens", "nsentences", "correct"):
                total[key] = total.get(key, 0) + step[key]
        return sums

    def metrics(self) -> list[dict[str, str]]:
        """What fairseq logs of the validations, but for speed and sizes of steps."""
        timed = re.compile("valid_(wps|wpb|bsz|wall|gb_peak|mfu)")
        return [
            {key: each for key, each in record.items() if not timed.match(key)}
            for record in logged(self.log.read_text(), "valid")
        ]

    def results(self) -> dict:
        """For the table: nats a target of each update, and the last validation."""
        updates, validations = self.updates(), self.validations()
        last = max(validations)
        sums = validations[last]
        return {
            "workers": self.workers,
            "losses": [each["loss"] / each["sample_size"] for each in updates.values()],
            "valid_loss": sums["loss"] / sums["sample_size"],
            "valid_sequences": sums["nsentences"],
            "valid_metrics": self.metrics()[-1],
        }

    def weights(self) -> dict[str, torch.Tensor]:
        last = self.save_dir / "checkpoint_last.pt"
        return torch.load(last, weights_only=True)["model"]
