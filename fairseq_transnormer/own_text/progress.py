"""A training's progress: a bar in a terminal, plain lines in a log."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from ..analysis.training_log import parse_training_log
from ..data.training_bar import TrainingBar
from ..training.exit_code import EXIT_RESUMABLE
from ..training.processes import child_process

LAST_LINES = 20
# of the log's lines what a resumed training begins with
RESUMED = re.compile(r"resumed at update \d+|resuming with another schedule: .*")
# received -> handed on to the training
SIGNALS = dict.fromkeys((signal.SIGTERM, signal.SIGHUP, signal.SIGINT), signal.SIGTERM)


class Progress:
    """Shows what the JSON log of a training says, as it comes.

    Args:
        updates: of the whole training.
        stream: where it is shown; by default stderr.
    """

    def __init__(self, updates: int, stream: TextIO | None = None):
        self.updates, self.stream = updates, stream or sys.stderr
        self.bar = None
        if self.stream.isatty():
            self.bar = TrainingBar(updates, stream=self.stream)
        self._first: tuple[int, float] | None = None

    def read(self, line: str) -> None:
        """Take a line of the log."""
        if found := RESUMED.search(line):
            self._say(found[0])
        records = parse_training_log(line)
        for record in records["train_inner"]:
            self._show(int(record["num_updates"]), record)
        for record in records["valid"]:
            self._say(
                f"update {record['valid_num_updates']}: validation loss "
                f"{record['valid_loss']} bits a token, perplexity "
                f"{record['valid_ppl']}"
            )

    def close(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.close()

    def _show(self, update: int, record: dict) -> None:
        if self.bar is not None:
            self.bar.describe(f"epoch {int(record['epoch']):03d}")
            self.bar.move_to(update)
            self.bar.show(record)
            return
        speed = f"{float(record['wps']):,.0f} tokens/s"
        self._say(
            f"update {update} of {self.updates}: loss {record['loss']} bits a token, "
            f"{speed}{self._time_left(update)}"
        )

    def _time_left(self, update: int) -> str:
        now = time.monotonic()
        if self._first is None or update <= self._first[0]:
            self._first = update, now
            return ""
        first, began = self._first
        seconds = (now - began) / (update - first) * (self.updates - update)
        return f", {seconds / 60:.0f} min left at most"

    def _say(self, text: str) -> None:
        if self.bar is not None:
            self.bar.say(text)
        else:
            print(text, file=self.stream, flush=True)


def run_training(
    command: Sequence[str], environment: Mapping[str, str], log: Path, updates: int
) -> int:
    """Run a training, its output to a log and its progress to stderr.

    SIGTERM, SIGHUP and a terminal's interrupt end the training after a checkpoint.

    Returns:
        its exit code. If it failed, the last lines of its output have been shown.
    """
    last: deque[str] = deque(maxlen=LAST_LINES)
    progress = Progress(updates)
    options = {
        "env": {**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "encoding": "utf-8",
        "errors": "replace",
        # else a terminal would interrupt it, too, and its workers
        "start_new_session": True,
    }
    with (
        open(log, "a", encoding="utf-8") as file,
        contextlib.closing(progress),
        child_process(command, SIGNALS, **options) as process,
    ):
        for line in process.stdout:
            file.write(line)
            file.flush()
            last.append(line)
            progress.read(line)
        code = process.wait()
    if code not in (0, EXIT_RESUMABLE):
        sys.stderr.writelines(last)
    return code
