"""Commands as forks of this process, which has imported fairseq.

To start Python and import fairseq takes longer than a few updates of a small model.
"""

import importlib
import logging
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import BinaryIO

from .processes import SIGNALS, LoggedProcess
from .run_folder import RunFolder

# what trainings import, and an optimizer as soon as it is made
IMPORTED = ("fairseq_transnormer.training.main", "torch._dynamo")


class ForkedProcess(LoggedProcess):
    """``python -m MODULE ARGUMENTS`` in a fork of this process; on the CPU alone."""

    def _start(
        self,
        command: list[str],
        folder: Path,
        output: BinaryIO,
        environment: dict[str, str],
    ) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        reading, writing = os.pipe()
        # until the fork is a process of its own, a signal is the runner's alone
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                _become(command, folder, output, environment)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(writing)
        os.read(reading, 1)  # ends when the fork leads its own group
        os.close(reading)
        return pid


def _become(
    command: list[str], folder: Path, output: BinaryIO, environment: dict[str, str]
) -> None:
    """Be the command's process, up to its end."""
    code = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        # locks of other runs, and the pipe that says that all this is done
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdout, sys.stderr = (
            os.fdopen(file, "w", buffering=1, closefd=False) for file in (1, 2)
        )
        logging.getLogger().handlers.clear()  # which write where the runner does
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        code = _run(command[2], command[3:])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(module: str, arguments: list[str]) -> int:
    """The exit code of ``python -m module``."""
    import torch
    from fairseq.logging import progress_bar

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    finally:  # fairseq's function at exit; others are of the process before the fork
        progress_bar._close_writers()
    return 0


class Forks:
    """Launches processes: of each command the first on each data folder as usual.

    So that what is left out, a process from its beginning, is seen to work, too.
    """

    def __init__(self) -> None:
        for name in IMPORTED:
            importlib.import_module(name)
        self._started: set[tuple[str, str]] = set()

    def __call__(
        self, command: list[str], folder: Path, log: str, environment: dict[str, str]
    ) -> LoggedProcess:
        """Start the command in a run's folder; as ``LoggedProcess``."""
        kind = (*command[:3], RunFolder(folder).description().get("data"))
        is_module = command[:2] == [sys.executable, "-m"]
        as_usual = not is_module or kind not in self._started
        self._started.add(kind)
        start = LoggedProcess if as_usual else ForkedProcess
        return start(command, folder, log, environment)
