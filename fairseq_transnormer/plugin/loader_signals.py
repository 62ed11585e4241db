"""Processes that load data end with their trainer, not by a signal to all processes.

Slurm and a terminal signal every process of a job. A trainer with a handler continues
to its checkpoint. torch's loaders would die immediately, and the trainer with them.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import resource_tracker

# Slurm's time limit and pre-emption; what sbatch --signal is often given; submitit's
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def start_loaders(init, iterator, loader):
    """Around torch's ``_MultiProcessingDataLoaderIter.__init__``: block signals."""
    handled = callable(signal.getsignal(signal.SIGTERM))
    if not handled or not hasattr(signal, "sigwaitinfo"):  # macOS
        return init(iterator, loader)
    if not isinstance(loader.worker_init_fn, _ObeyTrainer):
        loader.worker_init_fn = _ObeyTrainer(loader.worker_init_fn)
    if multiprocessing.get_start_method() != "fork":
        resource_tracker.ensure_running()  # when it starts, it unblocks SIGTERM
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return init(iterator, loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class _ObeyTrainer:
    """The first call of a process that loads data; then calls torch's own function."""

    def __init__(self, then: Callable | None) -> None:
        self.then = then

    def __call__(self, worker: int) -> None:
        threading.Thread(target=_end_with_trainer, daemon=True).start()
        if self.then is not None:
            self.then(worker)


def _end_with_trainer() -> None:
    """Among blocked signals obey only the trainer's, which ends its loaders."""
    trainer = multiprocessing.parent_process().pid
    while signal.sigwaitinfo(SIGNALS).si_pid != trainer:
        pass
    os._exit(0)
