"""Workers: how they are started, how they meet, and what happens when one is lost."""

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
from torch.distributed import distributed_c10d
from torch.multiprocessing.spawn import ProcessExitedException

from ..plugin.loader_signals import SIGNALS
from .exit_code import EXIT_RESUMABLE, mark_resumable
from .processes import set_up_logging
from .signals import request

logger = logging.getLogger(__name__)

# what gloo's errors say; NCCL's have a class of their own
DIED = re.compile(r"Connection (closed|reset) by peer|Broken pipe|Socket", re.I)
HUNG = re.compile(r"timed? ?out", re.I)


def call_main(cfg, main) -> None:
    """Call ``main(cfg)`` in each worker, as fairseq's function of this name does.

    A process that starts workers hands signals on to them. It ends with their exit code
    75, after a handler that there was: submitit queues a job again that has its
    checkpoint by then.

    Args:
        cfg: fairseq's whole configuration.
        main: takes ``cfg``; spawned workers get it by reference.
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
    """Be a worker: meet the others, then call ``main(cfg)``.

    Args:
        device: index of the GPU, or of the process on the CPU.
        first_rank: of this machine, for workers that do not know their own.
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
        if not workers:  # none has begun
            mark_resumable()
            raise SystemExit(EXIT_RESUMABLE)
        for worker in workers:
            os.kill(worker.pid, number)

    before = {each: signal.signal(each, note_and_hand_on) for each in SIGNALS}
    after = dict(before)
    try:
        torch.multiprocessing.spawn(_spawned, (main, cfg, first_rank), count)
    except ProcessExitedException as error:
        # by a signal that came before the worker could note it: nothing is lost
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
    """Form the group of all workers, in --heartbeat-timeout seconds at most.

    torch's own limit is 30 minutes, or NCCL's 10. fairseq's ``distributed_init`` leaves
    a group alone that is there, with a warning.
    """
    training = cfg.distributed_training
    seconds = training.heartbeat_timeout
    logger.info(
        "distributed init (rank %d): %s",
        training.distributed_rank,
        training.distributed_init_method,
    )
    try:
        with request.ending_at_once():
            torch.distributed.init_process_group(
                training.distributed_backend,
                init_method=training.distributed_init_method,
                world_size=training.distributed_world_size,
                rank=training.distributed_rank,
                timeout=timedelta(seconds=seconds) if seconds > 0 else None,
            )
            if torch.cuda.is_available():  # makes NCCL's communicator
                torch.distributed.all_reduce(torch.zeros(1).cuda())
    except RuntimeError:  # torch's errors of stores and networks, too
        logger.error(
            "worker %d of %d ends before training: another has not come, or has died; "
            "its own log says of what. The same command starts again",
            training.distributed_rank,
            training.distributed_world_size,
        )
        raise
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        training.distributed_rank = distributed_utils.distributed_init(cfg)


class Heartbeat(DistributedTimeoutWrapper):
    """--heartbeat-timeout with an end that is one.

    fairseq sends SIGINT, of which a process does not die while it waits for another in
    gloo or NCCL, and which ``torch.multiprocessing.spawn`` takes for success. Where the
    process group's own timeout, the same number of seconds, has not ended the process
    after twice that time, SIGKILL does.
    """

    def __init__(self, module, timeout: int) -> None:
        super().__init__(module, 2 * timeout, signal.SIGKILL)

    def stop_timeout(self) -> None:
        """Called at the end of training, where fairseq waits for the whole timeout."""
        self._terminated = True


def limit_waiting(trainer) -> None:
    """Let workers wait for each other for --heartbeat-timeout seconds at most.

    Otherwise torch's own limits hold: 10 minutes with NCCL, 30 with gloo.
    """
    seconds = trainer.cfg.distributed_training.heartbeat_timeout
    if seconds <= 0 or trainer.data_parallel_world_size == 1:
        return
    for group in {
        distributed_c10d._get_default_group(),
        trainer.data_parallel_process_group,
    }:
        distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)


def call_on_first_rank(trainer, function, *arguments):
    """What ``function(*arguments)`` returns on the first rank, on all.

    Args:
        trainer: fairseq's.
        function: returns plain values, which are sent.

    Raises:
        ValueError, OSError: what it raised; on other ranks a ValueError that says so.
    """
    if distributed_utils.get_global_world_size() == 1:
        return function(*arguments)
    caught, result = None, None
    if distributed_utils.get_global_rank() == 0:
        try:
            result = function(*arguments)
        except (ValueError, OSError) as found:
            caught = found
    error, result = distributed_utils.broadcast_object(
        (None if caught is None else str(caught), result),
        src_rank=0,
        group=distributed_utils.get_global_group(),
        dist_device=trainer.device,
    )
    if caught is not None:
        raise caught
    if error is not None:
        raise ValueError(error)
    return result


@contextmanager
def reporting_lost_ones(trainer) -> Iterator[None]:
    """Where a block of training fails, say what another worker has to do with it."""
    try:
        yield
    except RuntimeError as error:
        what = _what_happened(error)
        if trainer.data_parallel_world_size > 1 and what:
            logger.error(
                "worker %d of %d ends after update %d: another worker %s. The same "
                "command resumes from the last checkpoint in %s",
                trainer.data_parallel_rank,
                trainer.data_parallel_world_size,
                trainer.get_num_updates(),
                what,
                trainer.cfg.checkpoint.save_dir,
            )
        raise


def _what_happened(error: RuntimeError) -> str | None:
    text = str(error)
    if HUNG.search(text):
        return "has not answered in time: it hangs, or is slower than the limit"
    if DIED.search(text) or isinstance(error, torch.distributed.DistBackendError):
        return "has died; its own log says of what"
    return None
