"""Several runs at once, on the slots that there are."""

import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from ...training.exit_code import ended_by
from ...training.processes import handling
from ..errors import ReproduceError
from .devices import Slot
from .execution import Execution
from .processes import SIGNALS, Launch, LoggedProcess
from .progress import Progress
from .run_folder import RunFolder

POLL_SECONDS = 0.05


def run_all(
    folders: list[RunFolder],
    slots: list[Slot],
    progress: Progress,
    launch: Launch = LoggedProcess,
) -> dict[str, list[RunFolder]]:
    """Run every folder to its end; one that fails does not stop the others.

    SIGTERM, as a cluster sends it, and SIGHUP, as a terminal that is closed, end as
    Ctrl-C does: children are stopped and what ran is marked as interrupted. So does an
    error of the runner's own.

    Returns:
        "finished", "interrupted" and "failed": the folders.

    Raises:
        KeyboardInterrupt: after all that.
        ReproduceError: likewise, where progress cannot be told.
    """
    waiting, free = deque(folders), deque(slots)
    running: list[Execution] = []
    ended = {"finished": [], "interrupted": [], "failed": []}
    try:
        with _noted_signals() as noted, ExitStack() as stack:
            stack.callback(_stop_all, running)
            while (waiting or running) and not noted:
                while free and (
                    folder := _next_ready(waiting, running, ended, progress)
                ):
                    _start(folder, free, running, ended, progress, launch)
                for execution in list(running):
                    _look_at(execution, free, running, ended, progress)
                over = sum(map(len, ended.values()))
                progress.line([each.folder for each in running], over)
                time.sleep(POLL_SECONDS)
            if noted:
                with suppress(OSError):  # of a terminal that is closed
                    progress.tell(f"interrupted: stopping {len(running)} runs")
    except OSError as error:
        # those of a run's folder are that run's
        raise ReproduceError(
            f"progress cannot be told: {error.strerror}; stopped: {len(running)} runs"
        ) from error
    if noted:
        raise KeyboardInterrupt
    return ended


def _stop_all(running: list[Execution]) -> None:
    with _second_signals(), ExitStack() as stack:
        for execution in running:
            stack.callback(_stop, execution)


def _stop(execution: Execution) -> None:
    with suppress(OSError, ReproduceError):  # of its status; it has been stopped
        execution.stop()


def _next_ready(waiting, running, ended, progress) -> RunFolder | None:
    """Take the first run whose needs are finished; drop those that never will be."""
    ours = {each.path for each in waiting} | {each.folder.path for each in running}
    for folder in list(waiting):
        try:
            unfinished = [each for each in folder.needs() if not each.is_finished()]
            states = [each.status()["state"] for each in unfinished]
        except (ReproduceError, OSError) as error:
            # a damaged file, of its own or of what it needs
            waiting.remove(folder)
            _tell_failure(folder, error, ended, progress)
            continue
        if not unfinished:
            waiting.remove(folder)
            return folder
        hopeless = [
            each
            for each, state in zip(unfinished, states, strict=True)
            if each.path not in ours and state != "running"
        ]
        if hopeless:
            waiting.remove(folder)
            problem = f"it needs {hopeless[0].path}, which is not finished"
            _tell_failure(folder, problem, ended, progress)
    return None


def _start(folder, free, running, ended, progress, launch) -> None:
    try:
        execution = Execution(folder, free[0], launch)
    except (ReproduceError, OSError) as error:
        _tell_failure(folder, error, ended, progress)
        return
    running.append(execution)
    free.popleft()
    progress.tell(f"started  {folder.path} on {execution.slot}")


def _look_at(execution: Execution, free, running, ended, progress: Progress) -> None:
    """Note whether a run is over."""
    try:
        if execution.poll() == "running":
            return
        problem = None
    except (ReproduceError, OSError) as error:
        problem = error
    running.remove(execution)
    free.append(execution.slot)
    if problem is None:
        _tell_end(execution, ended, progress)
    else:
        _tell_failure(execution.folder, problem, ended, progress)


def _tell_failure(folder, problem: object, ended, progress: Progress) -> None:
    """Note a run that failed without a command of its own that did."""
    if isinstance(problem, OSError):
        where = problem.filename or "its files cannot be written"
        problem = f"{where}: {problem.strerror}"
    progress.finished(folder)
    ended["failed"].append(folder)
    progress.tell(f"failed   {folder.path}: {problem}")


def _tell_end(execution: Execution, ended, progress: Progress) -> None:
    folder = execution.folder
    if execution.state != "interrupted":
        progress.finished(folder)
    ended[execution.state].append(folder)
    if execution.state != "failed":
        progress.tell(f"{execution.state:8} {folder.path}")
    else:
        code = folder.status()["attempts"][-1]["exit_code"]
        progress.tell(f"failed   {folder.path}: ended by {ended_by(code)}")
        progress.tell("  | " + execution.log_tail().replace("\n", "\n  | "))


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Signals to end that have come; as exceptions they can be lost.

    Python drops what a handler raises while it forks, or ends an object.
    """
    noted: list[int] = []
    note = dict.fromkeys(SIGNALS, lambda number, frame: noted.append(number))
    with handling(note):
        yield noted


@contextmanager
def _second_signals() -> Iterator[None]:
    """A second SIGINT or SIGTERM waits no longer for the run that is stopped.

    SIGHUP comes more than once as a terminal is closed, and changes nothing more.
    """

    def interrupt(number, frame):
        raise KeyboardInterrupt

    handlers = dict.fromkeys(SIGNALS, interrupt) | {signal.SIGHUP: signal.SIG_IGN}
    with handling(handlers):
        yield
