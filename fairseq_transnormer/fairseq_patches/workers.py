"""Workers that die or hang: the others end, after a while at most, and report it."""

import logging
import re
import signal
import time
from datetime import timedelta
from functools import partial
from unittest import mock

import torch
from fairseq.distributed import DistributedTimeoutWrapper
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from torch.distributed import distributed_c10d

from . import stopping

logger = logging.getLogger(__name__)

# what gloo's errors say; NCCL's have a class of their own
DIED = re.compile(r"Connection (closed|reset) by peer|Broken pipe|Socket", re.I)
HUNG = re.compile(r"timed? ?out", re.I)


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


def install_heartbeat() -> None:
    """Put ``Heartbeat`` in the place of fairseq's class."""
    distributed_fairseq_model.DistributedTimeoutWrapper = Heartbeat


def limit_waiting(trainer) -> None:
    """Let workers wait for each other for --heartbeat-timeout seconds at most.

    Otherwise torch's own limits hold: 10 minutes with NCCL, 30 with gloo.
    """
    seconds = trainer.cfg.distributed_training.heartbeat_timeout
    if seconds <= 0 or trainer.data_parallel_world_size == 1 or trainer.tpu:
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


def limit_rendezvous(init, cfg):
    """Around distributed/utils.py, distributed_init: workers that never come.

    torch's own limit is 30 minutes, or NCCL's 10, whatever --heartbeat-timeout says.
    """
    training = cfg.distributed_training
    seconds = training.heartbeat_timeout
    make_group = torch.distributed.init_process_group
    if seconds > 0:
        make_group = partial(make_group, timeout=timedelta(seconds=seconds))
    began = time.monotonic()
    try:
        with (
            mock.patch.object(torch.distributed, "init_process_group", make_group),
            stopping.ending_at_once(),
        ):
            return init(cfg)
    except RuntimeError:  # torch's errors of stores and networks, too
        logger.error(
            "worker %s of %d ends before training: in %.0f seconds the others have "
            "not all come to %s, or one has died; their own logs say of what. The same "
            "command starts again",
            training.distributed_rank,
            training.distributed_world_size,
            time.monotonic() - began,
            training.distributed_init_method,
        )
        raise


def report_lost_worker(act, trainer):
    """``act()``, and what a failure has to do with other workers."""
    try:
        return act()
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
