"""SIGTERM, as Slurm and torchrun send it: a checkpoint, then exit code 75."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from torch.multiprocessing.spawn import ProcessExitedException

from .exit_code import MORE_TO_DO, note_more_to_do

logger = logging.getLogger(__name__)

# Slurm's time limit and pre-emption; what sbatch --signal is often given; submitit's
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# Slurm sends to every process and torchrun to its workers, too: one stop, two signals
SECONDS_OF_ONE_STOP = 10


class StopRequest:
    """What has been asked for by signals while ``noting`` them.

    The first signal is noted, and acted on behind the update; one that comes more than
    ``SECONDS_OF_ONE_STOP`` later ends the process at once.
    """

    def __init__(self) -> None:
        self.number = 0  # of the signal
        self._time = 0.0
        self._before: dict[int, object] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note signals instead of dying of them."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python lets no other thread set handlers
            return
        self.number = 0
        self._before = {each: signal.signal(each, self._note) for each in SIGNALS}
        try:
            yield
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
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


def _keep_from_data_loaders() -> None:
    """A process that loads data ends with its trainer, not of a signal to all."""
    if _request.is_noting() and hasattr(signal, "sigwaitinfo"):  # not on macOS
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        threading.Thread(target=_end_with_trainer, daemon=True).start()


def _end_with_trainer() -> None:
    """Of the signals that are blocked, obey the trainer's, which ends its loaders."""
    trainer = os.getppid()
    while signal.sigwaitinfo(SIGNALS).si_pid != trainer:
        pass
    os._exit(0)


os.register_at_fork(after_in_child=_keep_from_data_loaders)


def train_an_epoch(train, cfg, trainer, task, epoch_itr):
    """Around fairseq_cli/train.py, train: signals are noted while it runs."""
    with _request.noting():
        return train(cfg, trainer, task, epoch_itr)


def validate_and_save(original, cfg, trainer, task, epoch_itr, subsets, end_of_epoch):
    """Around fairseq_cli/train.py, validate_and_save: stop if any worker was asked to.

    The checkpoint is written before anything that is due at this update, since a
    validation may take longer than what is left.
    """
    number = _number_of_any_worker(trainer)
    if number:
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
    result = original(cfg, trainer, task, epoch_itr, subsets, end_of_epoch)
    is_done = result[1]
    if number and not is_done:
        for setting in ("no_save", "no_last_checkpoints"):
            if cfg.checkpoint[setting]:
                name = signal.Signals(number).name
                logger.info("%s: %s=true, so that nothing goes on", name, setting)
                _die(number)
        _leave(cfg, trainer, number)
    return result


def call_main(call, cfg, main, **arguments):
    """Around fairseq.distributed.utils.call_main: the process that started workers.

    It hands signals on to them and ends with their exit code, behind a handler that
    there was: a job that submitit queues again has its checkpoint by then.
    """
    training = cfg.distributed_training
    if training.distributed_init_method is None:
        distributed_utils.infer_init_method(training)
    if training.distributed_init_method is None or training.distributed_no_spawn:
        return call(cfg, main, **arguments)
    received = []

    def note_and_hand_on(number, frame):
        received.append(number)
        _hand_on(number)

    before = {each: signal.signal(each, note_and_hand_on) for each in SIGNALS}
    try:
        return call(cfg, main, **arguments)
    except ProcessExitedException as error:
        if error.exit_code != MORE_TO_DO:
            raise
        handler = before[received[0]] if received else None
        if callable(handler):
            handler(received[0], None)
        raise SystemExit(MORE_TO_DO) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hand_on(number: int) -> None:
    workers = active_children()
    if not workers:
        _die(number)
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


def _leave(cfg, trainer, number: int) -> None:
    """End the process, when the checkpoint is there."""
    if cfg.checkpoint.write_checkpoints_asynchronously:
        PathManager.async_close()
    note_more_to_do()
    if trainer.data_parallel_world_size > 1:
        # the first worker to leave may make a launcher end the others
        torch.distributed.barrier(trainer.data_parallel_process_group)
    if trainer.is_data_parallel_master:
        logger.info(
            "%s: stopped behind update %d with a checkpoint; exit code %d; the same "
            "command goes on",
            signal.Signals(number).name,
            trainer.get_num_updates(),
            MORE_TO_DO,
        )
    _request.call_handler_before(number)
    raise SystemExit(MORE_TO_DO)
