"""One run being run: its commands one after the other, its status kept up."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...installation import PACKAGE
from ...training.exit_code import EXIT_RESUMABLE
from ..errors import ReproduceError
from .devices import Slot
from .plans import Step
from .processes import Launch, LoggedProcess
from .run_folder import RunFolder
from .versions import commit, machine, versions

TAIL_BYTES = 4000


class Execution:
    """Takes a run from where it is to its end, without waiting for it.

    Args:
        folder: of the run, prepared.
        slot: where it runs.
        launch: starts a process; takes ``LoggedProcess``'s arguments.

    Raises:
        ReproduceError: another runner is at work in the folder, or the weights that
            the run starts from are not there, or others than planned.
        OSError: the folder cannot be written to; nothing runs then.
    """

    def __init__(
        self, folder: RunFolder, slot: Slot, launch: Launch = LoggedProcess
    ) -> None:
        self.folder, self.slot, self._launch = folder, slot, launch
        self._status = folder.status()
        with ExitStack() as stack:
            stack.enter_context(folder.lock())
            folder.record_start()
            self._stack = stack.pop_all()
        done = set(self._status["steps_done"])
        self._pending = [step for step in folder.steps() if step.name not in done]
        self._process: LoggedProcess | None = None
        self.state = "running"
        with self._released_on_error():
            self._start_next()

    def poll(self) -> str:
        """The state: running, finished, interrupted (by a signal) or failed.

        Raises:
            OSError, ReproduceError: the folder cannot be written to or has a damaged
                file; nothing runs any more.
        """
        with self._released_on_error():
            return self._poll()

    def _poll(self) -> str:
        if self._process is None or self._process.poll() is None:
            return self.state
        code = self._process.exit_code
        self._end_attempt()
        if code:
            return self._end("interrupted" if code == EXIT_RESUMABLE else "failed")
        self._status["steps_done"].append(self._pending.pop(0).name)
        self._start_next()
        return self.state

    def stop(self) -> None:
        """End what runs; the run is then interrupted.

        Raises:
            OSError: the folder cannot be written to; nothing runs any more.
        """
        if self._process is not None:
            self._process.stop()
            self._end_attempt()
            with self._released_on_error():
                self._end("interrupted")

    @contextmanager
    def _released_on_error(self) -> Iterator[None]:
        """Let the folder go where its files cannot be written.

        Its status says running there, which without a lock means interrupted.
        """
        try:
            yield
        except (OSError, ReproduceError):
            self.state = "failed"
            self._stack.close()
            raise

    def log_tail(self, lines: int = 15) -> str:
        """The end of the log of the last command."""
        step = self._status["attempts"][-1]["step"]
        return log_tail(self.folder.path / Step(step, []).log, lines)

    def _start_next(self) -> None:
        if not self._pending:
            self._end("finished")
            return
        step = self._pending[0]
        self._status["state"] = "running"
        self._status["attempts"].append(
            {
                "step": step.name,
                "started": time.time(),
                "device": str(self.slot),
                "machine": machine(),
                "commit": commit(),
                "versions": versions(),
            }
        )
        environment = self.slot.environment()
        # commands of this package, where it is not installed
        paths = [str(PACKAGE.parent), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self.folder.write_status(self._status)
        try:
            self._process = self._launch(
                step.command, self.folder.path, step.log, environment
            )
        except OSError as error:
            # after earlier attempts, whose records the run's figures are read from
            with (self.folder.path / step.log).open("a", encoding="utf-8") as log:
                # the last line may be half of one
                log.write(f"\n{step.command[0]}: {error.strerror}\n")
            self._status["attempts"][-1] |= {"ended": time.time(), "exit_code": 127}
            self._end("failed")

    def _end_attempt(self) -> None:
        self._status["attempts"][-1] |= {
            "ended": time.time(),
            "exit_code": self._process.exit_code,
            "peak_rss_bytes": self._process.peak_rss_bytes,
        }
        self._process = None

    def _end(self, state: str) -> str:
        self.state = self._status["state"] = state
        self.folder.write_status(self._status)
        self._stack.close()
        return state


def log_tail(log: Path, lines: int) -> str:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return f"no log at {log}"
    return "\n".join(text.splitlines()[-lines:])
