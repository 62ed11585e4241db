"""SIGTERM, as Slurm and torchrun send it: a checkpoint, then exit code 75.

Signals are noted from the start of a training's ``call_main``, or of the first function
of this package that fairseq calls, until training is done. While workers meet, where
nothing is there to save, they end the process.
"""

import inspect
import logging
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing import active_children, resource_tracker
from pathlib import Path
from unittest import mock

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from torch.multiprocessing.spawn import ProcessExitedException

from ..training.exit_code import EXIT_RESUMABLE, mark_resumable
from . import run_lock
from .training_state import VALID_LOSS

logger = logging.getLogger(__name__)

# Slurm's time limit and pre-emption; what sbatch --signal is often given; submitit's
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# programs of fairseq_cli that train nothing: a signal ends them as any other process
READERS = ("eval_lm", "hydra_validate", "interactive", "validate")
# Slurm sends to every process and torchrun to its workers, too: one stop, two signals
SECONDS_OF_ONE_STOP = 10


class StopRequest:
    """What has been asked for by signals while ``noting`` them.

    The first signal is noted, and acted on after the update; one that comes more than
    ``SECONDS_OF_ONE_STOP`` later ends the process at once.
    """

    def __init__(self) -> None:
        self.number = 0  # of the signal
        self._time = 0.0
        self._before: dict[int, object] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note signals instead of dying of them."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Note signals from now on."""
        if self._before or threading.current_thread() is not threading.main_thread():
            return  # Python lets no other thread set handlers
        self.number = 0
        self._before = {each: signal.signal(each, self._note) for each in SIGNALS}

    def end(self) -> None:
        """Leave signals to who had them before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def ignore(self) -> None:
        """The process is ending: what comes now, to all processes, is the same stop."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        self._before = {}

    def call_handler_before(self, number: int) -> None:
        """Call the handler that there was, such as submitit's, which requeues."""
        handler = self._before.get(number)
        if callable(handler):
            handler(number, None)

    def is_noting(self) -> bool:
        """Whether signals do not end this process."""
        return bool(self._before)

    def _note(self, number, frame) -> None:
        if not self.number:
            self.number, self._time = number, time.monotonic()
        elif time.monotonic() - self._time > SECONDS_OF_ONE_STOP:
            _die(number)


_request = StopRequest()


def start_loaders(init, iterator, loader):
    """Around torch's _MultiProcessingDataLoaderIter.__init__, which starts processes.

    A process that loads data ends with its trainer, not of a signal to all. It starts
    with signals blocked, forked or spawned (as in workers that were spawned).
    """
    if not _request.is_noting() or not hasattr(signal, "sigwaitinfo"):  # macOS
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
    """What a process that loads data calls first, before what it would call."""

    def __init__(self, then: Callable | None) -> None:
        self.then = then

    def __call__(self, worker: int) -> None:
        threading.Thread(target=_end_with_trainer, daemon=True).start()
        if self.then is not None:
            self.then(worker)


def _end_with_trainer() -> None:
    """Of the signals that are blocked, obey the trainer's, which ends its loaders."""
    trainer = multiprocessing.parent_process().pid
    while signal.sigwaitinfo(SIGNALS).si_pid != trainer:
        pass
    os._exit(0)


def note_signals() -> None:
    """Note them where ``call_main`` did not: fairseq-hydra-train loads us after it."""
    _request.begin()


def stop_before_training(cfg, trainer) -> None:
    """End if any worker was asked to; nothing is lost before the first update.

    Args:
        cfg: fairseq's configuration ``checkpoint``.
        trainer: fairseq's.
    """
    number = _number_of_any_worker(trainer)
    if number:
        _die_without_checkpoints(cfg, number)
        _leave(cfg, trainer, number, "before the first update; nothing is lost")


def train_epoch(train, cfg, trainer, task, epoch_itr):
    """Around fairseq_cli/train.py, train: signals are noted until the last one ends."""
    is_last = True
    try:
        if not getattr(trainer, "has_begun", False):
            stop_before_training(cfg.checkpoint, trainer)
            trainer.has_begun = True
        result = train(cfg, trainer, task, epoch_itr)
        max_epoch = cfg.optimization.max_epoch or math.inf
        is_last = result[1] or epoch_itr.next_epoch_idx > max_epoch
        return result
    finally:
        if is_last:
            _request.end()


def validate_and_save(original, cfg, trainer, task, epoch_itr, subsets, end_of_epoch):
    """Around fairseq_cli/train.py, validate_and_save: stop if any worker was asked to.

    The checkpoint is written before anything that is due at this update, since a
    validation may take longer than what is left.
    """
    number = _number_of_any_worker(trainer)
    if number:
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        trainer.is_saved = False
    result = original(cfg, trainer, task, epoch_itr, subsets, end_of_epoch)
    (loss, *_), is_done = result
    if number and not is_done:
        _die_without_checkpoints(cfg.checkpoint, number)
        if loss is not None and not trainer.is_saved:
            # the checkpoint is to know of the validation
            trainer.kept[VALID_LOSS] = loss
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        updates = trainer.get_num_updates()
        _leave(
            cfg.checkpoint, trainer, number, f"after update {updates} with a checkpoint"
        )
    return result


def note_saving(save, cfg, trainer, epoch_itr, val_loss):
    """Around checkpoint_utils.py, save_checkpoint, which all workers call."""
    result = save(cfg, trainer, epoch_itr, val_loss)
    trainer.is_saved = True
    return result


def call_main(call, cfg, main, **arguments):
    """Around fairseq.distributed.utils.call_main: training, or who starts workers.

    The latter hands signals on to them and ends with their exit code, after a handler
    that there was: a job that submitit queues again has its checkpoint by then.
    """
    if _only_reads(main):
        with mock.patch.object(distributed_utils, "distributed_main", worker_main):
            return call(cfg, main, **arguments)
    training = cfg.distributed_training
    if training.distributed_init_method is None:
        distributed_utils.infer_init_method(training)
    if training.distributed_init_method is None or training.distributed_no_spawn:
        with _request.noting(), run_lock.released_after():
            return call(cfg, main, **arguments)
    received = []

    def note_and_hand_on(number, frame):
        received.append(number)
        _hand_on(number)

    handlers = {each: signal.signal(each, note_and_hand_on) for each in SIGNALS}
    try:
        # workers load this package with the function that they are to call
        with mock.patch.object(distributed_utils, "distributed_main", worker_main):
            return call(cfg, main, **arguments)
    except ProcessExitedException as error:
        # by a signal that came before the worker could note it: nothing is lost
        ended_by = (EXIT_RESUMABLE, *(-each for each in received))
        if error.exit_code not in ended_by:
            raise
        handler = handlers[received[0]] if received else None
        if callable(handler):
            handler(received[0], None)
        handlers = dict.fromkeys(SIGNALS, signal.SIG_IGN)  # more of the same stop
        raise SystemExit(EXIT_RESUMABLE) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _only_reads(main: Callable | None) -> bool:
    """Whether ``main`` is of a program in ``READERS``, imported or run by its name."""
    code = getattr(inspect.unwrap(main) if main else None, "__code__", None)
    file = Path(code.co_filename) if code else Path()
    return file.parent.name == "fairseq_cli" and file.stem in READERS


def worker_main(rank: int, main, cfg, keywords: dict) -> None:
    """fairseq's ``distributed_main``, in a process that has loaded this package."""
    with nullcontext() if _only_reads(main) else _request.noting():
        distributed_utils.distributed_main(rank, main, cfg, keywords)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let a signal end the process with 75 while it waits for the other workers.

    They meet in C++, where Python's handlers wait, too: a thread reads of the signal.
    """
    if not _request.is_noting():
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


def _end_on_signal(reading: int) -> None:
    while byte := os.read(reading, 1):
        if byte[0] in SIGNALS:
            mark_resumable()
            logger.info(
                "%s: stopped before the workers have met; nothing is lost; exit code "
                "%d; the same command starts again",
                signal.Signals(byte[0]).name,
                EXIT_RESUMABLE,
            )
            logging.shutdown()
            os._exit(EXIT_RESUMABLE)


def _hand_on(number: int) -> None:
    workers = active_children()
    if not workers:  # none has begun
        mark_resumable()
        raise SystemExit(EXIT_RESUMABLE)
    for worker in workers:
        os.kill(worker.pid, number)


def _die(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _number_of_any_worker(trainer) -> int:
    """The signal that a worker has noted, the same for all, or 0."""
    if trainer.data_parallel_world_size == 1:
        return _request.number
    number = torch.tensor([_request.number], dtype=torch.int32, device=trainer.device)
    distributed_utils.all_reduce(
        number, group=trainer.data_parallel_process_group, op="max"
    )
    return int(number)


def _die_without_checkpoints(cfg, number: int) -> None:
    """As any other process of the signal, where nothing could be resumed."""
    for setting in ("no_save", "no_last_checkpoints", "no_save_optimizer_state"):
        if getattr(cfg, setting):
            name = signal.Signals(number).name
            logger.info("%s: %s=true: it ends without a checkpoint", name, setting)
            _die(number)


def _leave(cfg, trainer, number: int, where: str) -> None:
    """End the process, when the checkpoint is there."""
    if cfg.write_checkpoints_asynchronously:
        PathManager.async_close()
    mark_resumable()
    if trainer.data_parallel_world_size > 1:
        # the first worker to leave may make a launcher end the others
        torch.distributed.barrier(trainer.data_parallel_process_group)
    if trainer.is_data_parallel_master:
        logger.info(
            "%s: stopped %s; exit code %d; the same command resumes",
            signal.Signals(number).name,
            where,
            EXIT_RESUMABLE,
        )
    _request.call_handler_before(number)
    _request.ignore()
    raise SystemExit(EXIT_RESUMABLE)
