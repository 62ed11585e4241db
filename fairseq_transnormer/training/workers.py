"""Workers: how they start, how they connect, and what happens when one is lost."""

import logging
import os
import re
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import active_children

import torch
from fairseq.distributed import DistributedTimeoutWrapper
from fairseq.distributed import utils as distributed_utils
from torch.distributed import DistBackendError, distributed_c10d
from torch.multiprocessing.spawn import ProcessExitedException

from ..plugin.loader_signals import SIGNALS
from .exit_code import EXIT_RESUMABLE, mark_resumable
from .processes import set_up_logging
from .signals import request

logger = logging.getLogger(__name__)

# texts of gloo's errors; NCCL's errors have their own class
DIED = re.compile(r"Connection (closed|reset) by peer|Broken pipe|Socket", re.I)
HUNG = re.compile(r"timed? ?out", re.I)


def call_main(cfg, main) -> None:
    """Call ``main(cfg)`` in each worker, as fairseq's function of this name does.

    A process that starts workers forwards signals to them. After their exit code 75 it
    calls the earlier handler and ends with 75: submitit requeues the job, which has its
    checkpoint by then. Spawned workers get ``main`` by reference.
    """
    training = cfg.distributed_training
    if training.distributed_init_method is None:
        distributed_utils.infer_init_method(training)
    if training.distributed_init_method is None:
        with request.noted():
            main(cfg)
    elif training.distributed_no_spawn:
        work(training.device_id, main, cfg)
    else:
        first, training.distributed_rank = training.distributed_rank, None
        count = min(torch.cuda.device_count(), training.distributed_world_size)
        _spawn(count, main, cfg, first)


def work(device: int, main, cfg, first_rank: int = 0) -> None:
    """Run a worker, by the index of its GPU or process: connect, then ``main(cfg)``.

    Without a rank in ``cfg`` it counts from the machine's ``first_rank``.
    """
    training = cfg.distributed_training
    training.device_id = device
    if training.distributed_rank is None:
        training.distributed_rank = first_rank + device
    if torch.cuda.is_available() and not cfg.common.cpu:
        torch.cuda.set_device(device)
    with request.noted():
        _meet(cfg)
        main(cfg)
        torch.distributed.barrier(distributed_utils.get_global_group())


def _spawned(device: int, main, cfg, first_rank: int) -> None:
    set_up_logging(anew=True)
    work(device, main, cfg, first_rank)


def _spawn(count: int, main, cfg, first_rank: int) -> None:
    received = []

    def note_and_hand_on(number, frame):
        received.append(number)
        workers = active_children()
        if not workers:  # none has started
            mark_resumable()
            raise SystemExit(EXIT_RESUMABLE)
        for worker in workers:
            os.kill(worker.pid, number)

    before = {each: signal.signal(each, note_and_hand_on) for each in SIGNALS}
    after = dict(before)
    try:
        torch.multiprocessing.spawn(_spawned, (main, cfg, first_rank), count)
    except ProcessExitedException as error:
        # the signal came before the worker could note it: nothing is lost
        if error.exit_code not in (EXIT_RESUMABLE, *(-each for each in received)):
            raise
        handler = before[received[0]] if received else None
        if callable(handler):
            handler(received[0], None)
        after = dict.fromkeys(SIGNALS, signal.SIG_IGN)  # more of the same stop
        raise SystemExit(EXIT_RESUMABLE) from None
    finally:
        for number, handler in after.items():
            signal.signal(number, handler)


def _meet(cfg) -> None:
    """Connect all workers, within --heartbeat-timeout seconds."""
    training = cfg.distributed_training
    seconds = training.heartbeat_timeout
    rank, method = training.distributed_rank, training.distributed_init_method
    logger.info("distributed init (rank %d): %s", rank, method)
    try:
        with request.ending_at_once():
            torch.distributed.init_process_group(
                training.distributed_backend,
                init_method=method,
                world_size=training.distributed_world_size,
                rank=rank,
                timeout=timedelta(seconds=seconds) if seconds > 0 else None,
            )
            if torch.cuda.is_available():  # makes NCCL's communicator
                torch.distributed.all_reduce(torch.zeros(1).cuda())
    except RuntimeError:  # torch's errors of stores and networks, too
        logger.error(
            f"worker {rank} of {training.distributed_world_size} ends before training: "
            "another did not connect, or died. The same command starts again"
        )
        raise
    with warnings.catch_warnings():  # that the group exists already
        warnings.simplefilter("ignore")
        training.distributed_rank = distributed_utils.distributed_init(cfg)


class Heartbeat(DistributedTimeoutWrapper):
    """--heartbeat-timeout that really ends the process.

    fairseq's SIGINT does not end a process that waits in gloo or NCCL. If the timeout
    of the process group does not end it either, SIGKILL does after twice the time.
    """

    def __init__(self, module, timeout: int) -> None:
        super().__init__(module, 2 * timeout, signal.SIGKILL)

    def stop_timeout(self) -> None:
        """Called at the end of training; fairseq would wait for the whole timeout."""
        self._terminated = True


def limit_waiting(trainer) -> None:
    """Let workers wait for each other for --heartbeat-timeout seconds at most."""
    seconds = trainer.cfg.distributed_training.heartbeat_timeout
    if seconds > 0 and trainer.data_parallel_world_size > 1:
        whole = distributed_c10d._get_default_group()
        for group in {whole, trainer.data_parallel_process_group}:
            distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)


def of_all_workers(value) -> list:
    """A plain value of each worker, by rank, on all workers."""
    count = distributed_utils.get_global_world_size()
    if count == 1:
        return [value]
    found: list = [None] * count
    group = distributed_utils.get_global_group()
    torch.distributed.all_gather_object(found, value, group=group)
    return found


def call_on_first_rank(trainer, function, *arguments):
    """Call a function on the first rank, and return its plain values on all ranks.

    Raises:
        ValueError, OSError: the function's error; on other ranks always ValueError.
    """
    if distributed_utils.get_global_world_size() == 1:
        return function(*arguments)
    caught, result = None, None
    if distributed_utils.get_global_rank() == 0:
        try:
            result = function(*arguments)
        except (ValueError, OSError) as found:
            caught = found
    group = distributed_utils.get_global_group()
    outcome = (caught and str(caught), result)
    error, result = distributed_utils.broadcast_object(
        outcome, 0, group, trainer.device
    )
    if error is not None:
        raise caught or ValueError(error)
    return result


@contextmanager
def reporting_lost_ones(trainer) -> Iterator[None]:
    """If a block of training fails, name the part of other workers in it."""
    try:
        yield
    except RuntimeError as error:
        what, workers = None, trainer.data_parallel_world_size
        if HUNG.search(str(error)):
            what = "did not answer in time: it hangs, or is slower than the limit"
        elif DIED.search(str(error)) or isinstance(error, DistBackendError):
            what = "died; its own log has the cause"
        if workers > 1 and what:
            logger.error(
                f"worker {trainer.data_parallel_rank} of {workers} ends after update "
                f"{trainer.get_num_updates()}: another worker {what}. The same command "
                f"resumes from the last checkpoint in {trainer.cfg.checkpoint.save_dir}"
            )
        raise
