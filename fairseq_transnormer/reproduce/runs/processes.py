"""A child process with a log, whose memory is known when it ends."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

# what ends a runner, and its children with it; the last as a terminal is closed
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# an update, a checkpoint, and what else a training does after SIGTERM
KILL_AFTER_SECONDS = 90


class LoggedProcess:
    """A command in a process group of its own, its output appended to a log.

    A group of its own, so that Ctrl-C reaches the runner alone, which then ends the
    child and all that the child has started.
    """

    _process: subprocess.Popen | None = None

    def __init__(
        self, command: list[str], folder: Path, log: str, environment: dict[str, str]
    ) -> None:
        with (folder / log).open("ab") as output:
            self.pid = self._start(command, folder, output, environment)
        self.exit_code: int | None = None
        self.peak_rss_bytes: int | None = None

    def _start(
        self,
        command: list[str],
        folder: Path,
        output: BinaryIO,
        environment: dict[str, str],
    ) -> int:
        """The number of a new process that leads a group of its own."""
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        if self.exit_code is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self._ended(status, usage)
        return self.exit_code

    def stop(self) -> None:
        """End the group: SIGTERM, and SIGKILL for what is left after a while."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + KILL_AFTER_SECONDS
        try:
            while self.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:  # a second Ctrl-C waits no longer
            self._signal(signal.SIGKILL)
        if self.exit_code is None:
            _, status, usage = os.wait4(self.pid, 0)
            self._ended(status, usage)

    def _ended(self, status: int, usage) -> None:
        self.exit_code = os.waitstatus_to_exitcode(status)
        self.peak_rss_bytes = usage.ru_maxrss * 1024  # Linux counts in KiB
        if self._process is not None:
            self._process.returncode = self.exit_code

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # nothing of the group is left
            pass


Launch = Callable[[list[str], Path, str, dict[str, str]], LoggedProcess]
