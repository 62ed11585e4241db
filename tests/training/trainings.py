"""fairseq-train in real processes, forked off one that has imported fairseq already."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from tests import forked_trainings
from tests.forked_trainings import SECONDS, Call, logged, training_arguments
from tests.messages import lines_naming

__all__ = ["SECONDS", "Training", "line_with", "training_arguments"]

ACCIDENTS = "tests.training.accidents"

# what fairseq logs, for tests to wait for
MEETING = "distributed init (rank 0)"
LOADING = "Preparing to load checkpoint"
UPDATE_9 = '"num_updates": "9"'
# of each run, but where it says so
LAST = 9


@dataclass
class Training(forked_trainings.Training):
    """A training run in which something happens."""

    DEFAULTS = {
        "batch-size": 4, "max-update": LAST, "save-interval-updates": 3,
        "keep-interval-updates": 2, "tokens-per-sample": 32,
        "no-epoch-checkpoints": True,
    }  # fmt: skip

    def start(self, accident: tuple = (), at_worker: int | None = 0) -> None:
        """Start all workers; ``accident``: name and details; to one, or all (None)."""
        self._accident, self._at_worker = accident, at_worker
        super().start()

    def run(self, accident: tuple = (), at_worker: int | None = 0) -> list[int]:
        """Start and wait; the exit codes."""
        self.start(accident, at_worker)
        return self.wait()

    def before(self, rank: int) -> list[Call]:
        if not self._accident or self._at_worker not in (None, rank):
            return []
        name, *details = self._accident
        return [Call(ACCIDENTS, name, tuple(details))]

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
        return updates_of(self.save_dir / name)


def updates_of(checkpoint: Path) -> int:
    state = torch.load(checkpoint, weights_only=True)
    return state["optimizer_history"][-1]["num_updates"]


def line_with(text: str, *parts: object) -> str:
    """The first line that names each of ``parts``, without time and logger."""
    found = lines_naming(text, *parts)
    assert found, f"no line names {parts}:\n{text}"
    return re.sub(r"^([\d: -]+\| \w+ \| [\w.]+ \| |\w+:[\w.]+:)", "", found[0])
