"""fairseq-train in real processes as torchrun starts them, and their results."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from tests import forked_trainings
from tests.forked_trainings import Call, free_port, logged

SEQUENCES = 16  # of an update
BATCH = 4


@dataclass
class Training(forked_trainings.Training):
    """A training run that is recorded; each worker accumulates what fills an update."""

    DEFAULTS = {
        "batch-size": BATCH, "max-update": 12, "dropout": 0,
        "save-interval-updates": 8,
    }  # fmt: skip

    @property
    def folder(self) -> Path:
        return self.save_dir.parent

    def start(self) -> None:
        self._port = free_port()
        super().start()

    def parallel(self, rank: int) -> list[str]:
        layout = ["--update-freq", str(SEQUENCES // BATCH // self.workers)]
        if self.workers == 1:
            return layout
        chosen = self.options.get("ddp-backend", "legacy_ddp")
        return [
            *layout,
            *("--distributed-world-size", str(self.workers)),
            *("--distributed-backend", "gloo", "--ddp-backend", chosen),
        ]

    def environment(self, rank: int) -> dict[str, str]:
        given = {"SEQUENCES_PER_UPDATE": str(SEQUENCES)}
        if self.workers > 1:
            given |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(self._port)}
            given |= {"RANK": str(rank), "WORLD_SIZE": str(self.workers)}
        return given

    def before(self, rank: int) -> list[Call]:
        recording = "tests.workers.recording"
        return [
            Call(recording, "record", (self.steps_file,)),
            Call(recording, "let_pytorch_ddp_take_cpus"),
        ]

    @property
    def log(self) -> Path:
        """Of the first worker, which alone logs."""
        return self.logs[0]

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

    def weights(self) -> dict[str, torch.Tensor]:
        last = self.save_dir / "checkpoint_last.pt"
        return torch.load(last, weights_only=True)["model"]
