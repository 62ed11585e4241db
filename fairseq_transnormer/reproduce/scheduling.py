"""Several runs at once, on the slots that there are."""

import signal
import time
from collections import deque
from contextlib import contextmanager

from .devices import Slot
from .errors import ReproduceError
from .execution import Execution
from .processes import Launch, LoggedProcess
from .progress import Progress
from .runs import RunFolder

POLL_SECONDS = 0.05


def run_all(
    folders: list[RunFolder],
    slots: list[Slot],
    progress: Progress,
    launch: Launch = LoggedProcess,
) -> dict[str, list[RunFolder]]:
    """Run every folder to its end; one that fails does not stop the others.

    SIGTERM, as a cluster sends it, ends as Ctrl-C does: children are stopped and what
    ran is marked as interrupted.

    Returns:
        "finished", "interrupted" and "failed": the folders.

    Raises:
        KeyboardInterrupt: behind all that.
    """
    waiting, free = deque(folders), deque(slots)
    running: list[Execution] = []
    ended = {"finished": [], "interrupted": [], "failed": []}
    with _sigterm_as_interrupt():
        try:
            while waiting or running:
                while free and (
                    folder := _next_ready(waiting, running, ended, progress)
                ):
                    _start(folder, free, running, ended, progress, launch)
                for execution in list(running):
                    if execution.poll() != "running":
                        running.remove(execution)
                        free.append(execution.slot)
                        _tell_end(execution, ended, progress)
                over = sum(map(len, ended.values()))
                progress.line([each.folder for each in running], over)
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            progress.tell(f"interrupted: stopping {len(running)} runs")
            for execution in running:
                execution.stop()
            raise
    return ended


def _next_ready(waiting, running, ended, progress) -> RunFolder | None:
    """Take the first run whose needs are finished; drop those that never will be."""
    ours = {each.path for each in waiting} | {each.folder.path for each in running}
    for folder in list(waiting):
        unfinished = [each for each in folder.needs() if not each.is_finished()]
        if not unfinished:
            waiting.remove(folder)
            return folder
        hopeless = [
            each
            for each in unfinished
            if each.path not in ours and each.status()["state"] != "running"
        ]
        if hopeless:
            waiting.remove(folder)
            progress.finished(folder)
            ended["failed"].append(folder)
            progress.tell(
                f"failed   {folder.path}: it needs {hopeless[0].path}, which is not "
                "finished"
            )
    return None


def _start(folder, free, running, ended, progress, launch) -> None:
    try:
        execution = Execution(folder, free[0], launch)
    except ReproduceError as error:
        progress.tell(f"failed   {folder.path}: {error}")
        ended["failed"].append(folder)
        return
    running.append(execution)
    free.popleft()
    progress.tell(f"started  {folder.path} on {execution.slot}")


def _tell_end(execution: Execution, ended, progress: Progress) -> None:
    folder = execution.folder
    if execution.state != "interrupted":
        progress.finished(folder)
    ended[execution.state].append(folder)
    progress.tell(f"{execution.state:8} {folder.path}")
    if execution.state == "failed":
        progress.tell("  | " + execution.log_tail().replace("\n", "\n  | "))


@contextmanager
def _sigterm_as_interrupt():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
