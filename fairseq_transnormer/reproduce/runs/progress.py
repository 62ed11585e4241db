"""How far the runs are, in plain lines that suit a terminal and a log file."""

import re
import time
from collections.abc import Callable

from .run_folder import RunFolder

# of records of training and, as few updates have none, of validation
UPDATES = re.compile(rb'"(?:\w+_)?num_updates": "(\d+)"')
TAIL_BYTES = 20_000


def updates_done(folder: RunFolder) -> int:
    """Updates of a run's training so far, by the end of its log."""
    log = folder.path / "train.log"
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            found = UPDATES.findall(file.read())
    except OSError:
        return 0
    return int(found[-1]) if found else 0


def duration(seconds: float) -> str:
    """3700 -> "1:01:40"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


class Progress:
    """Reports when runs start and end and, now and then, how long the rest will take.

    Args:
        folders: of all runs of this call.
        interval: seconds between two lines about all.
        tell: takes a line.
    """

    def __init__(
        self,
        folders: list[RunFolder],
        interval: float,
        tell: Callable[[str], None] = lambda line: print(line, flush=True),
    ) -> None:
        self._updates = {
            folder.path: folder.description()["updates"] for folder in folders
        }
        self._done = {folder.path: updates_done(folder) for folder in folders}
        self._at_start = sum(self._done.values())
        self._interval, self.tell = interval, tell
        self._start = self._told = time.monotonic()

    def line(self, running: list[RunFolder], finished: int) -> None:
        """Tell how far everything is, if it is time to."""
        now = time.monotonic()
        if now - self._told < self._interval:
            return
        self._told = now
        for folder in running:
            self._done[folder.path] = updates_done(folder)
        self.tell(self._text(now - self._start, running, finished))

    def finished(self, folder: RunFolder) -> None:
        """A run is over: nothing of it remains."""
        self._done[folder.path] = self._updates[folder.path]

    def _text(self, elapsed: float, running: list[RunFolder], finished: int) -> str:
        done, total = sum(self._done.values()), sum(self._updates.values())
        new = done - self._at_start
        rest = duration(elapsed * (total - done) / new) if new > 0 else "unknown"
        each = ", ".join(
            f"{f.path.parent.name} {self._done[f.path]}/{self._updates[f.path]}"
            for f in running
        )
        return (
            f"[{duration(elapsed)}] {finished}/{len(self._updates)} runs, "
            f"{done:,}/{total:,} updates, {rest} left; {each}"
        )
