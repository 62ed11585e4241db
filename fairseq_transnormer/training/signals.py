"""On SIGTERM, as from Slurm and torchrun: write a checkpoint, end with exit code 75.

A training notes signals, and acts between updates. While workers connect there is
nothing to save, and signals end the process.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from fairseq.distributed import utils as distributed_utils

from ..plugin.loader_signals import SIGNALS
from .exit_code import EXIT_RESUMABLE, mark_resumable

logger = logging.getLogger(__name__)

# Slurm signals every process and torchrun its workers: one stop, two signals
SECONDS_OF_ONE_STOP = 10


def most_of_workers(trainer, number: int) -> int:
    """The largest number of any worker, the same on all workers."""
    if trainer.data_parallel_world_size == 1:
        return number
    found = torch.tensor([number], dtype=torch.int32, device=trainer.device)
    distributed_utils.all_reduce(found, trainer.data_parallel_process_group, "max")
    return int(found)


class StopRequest:
    """The first signal while ``noted``; a later one ends the process immediately."""

    def __init__(self) -> None:
        self.number = 0  # of the signal
        self._time = 0.0
        self._before: dict[int, object] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note signals instead of ending."""
        # Python lets only the main thread set handlers
        if self._before or threading.current_thread() is not threading.main_thread():
            yield
            return
        self.number = 0
        self._before = {each: signal.signal(each, self._note) for each in SIGNALS}
        try:
            yield
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before = {}

    def of_any_worker(self, trainer) -> int:
        """The signal that any worker has noted, the same on all workers, or 0."""
        return most_of_workers(trainer, self.number)

    def leave(self, trainer, number: int, where: str) -> None:
        """End all workers with exit code 75; ``where`` is for the log.

        The earlier handler is called first: submitit's handler requeues the job.
        """
        mark_resumable()
        if trainer.data_parallel_world_size > 1:
            # the first worker to leave may make a launcher end the others
            torch.distributed.barrier(trainer.data_parallel_process_group)
        if trainer.is_data_parallel_master:
            logger.info(
                f"{signal.Signals(number).name}: stopped {where}; exit code "
                f"{EXIT_RESUMABLE}; the same command resumes"
            )
        handler = self._before.get(number)
        if callable(handler):
            handler(number, None)
        for each in self._before:  # later signals to all processes are the same stop
            signal.signal(each, signal.SIG_IGN)
        self._before = {}
        raise SystemExit(EXIT_RESUMABLE)

    @contextmanager
    def ending_at_once(self) -> Iterator[None]:
        """Let a signal end the process with 75 while it waits for the other workers.

        Workers wait in C++, where Python's handlers do not run. So a thread reads the
        signal.
        """
        if not self._before:
            yield
            return
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        thread = threading.Thread(target=_end_on_signal, args=(reading,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            os.close(writing)
            thread.join()
            os.close(reading)

    def _note(self, number, frame) -> None:
        if not self.number:
            self.number, self._time = number, time.monotonic()
        elif time.monotonic() - self._time > SECONDS_OF_ONE_STOP:
            die(number)


request = StopRequest()


def die(number: int) -> None:
    """End by a signal, as a process without handlers does."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _end_on_signal(reading: int) -> None:
    while byte := os.read(reading, 1):
        if byte[0] in SIGNALS:
            mark_resumable()
            logger.info(
                f"{signal.Signals(byte[0]).name}: stopped before workers connected; "
                f"exit code {EXIT_RESUMABLE}; the same command starts again"
            )
            logging.shutdown()
            os._exit(EXIT_RESUMABLE)
