"""Where fault tolerance enters training: fairseq-train, Hydra, scripts and runner."""

import logging
import sys
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from ..dictionary_identity import save_identity
from ..wrapping import wrap
from . import (
    binary_data,
    mixed_precision,
    saving,
    setting_changes,
    setting_limits,
    stopping,
    workers,
)
from .checkpoint_files import repair_last_checkpoint

logger = logging.getLogger(__name__)

# fairseq_cli/train.py under each name that it may have
TRAINING_PROGRAMS = ("fairseq_cli.train", "__main__", "__mp_main__")


def install() -> None:
    """Put everything around fairseq's functions; training begins in the first."""
    wrap(checkpoint_utils, "load_checkpoint", _begin)
    wrap(distributed_utils, "call_main", stopping.call_main)
    saving.install()
    mixed_precision.install()
    workers.install()
    binary_data.install()
    setting_limits.install()


def _begin(load_checkpoint, cfg, trainer, **arguments):
    """Around checkpoint_utils.py, load_checkpoint, which training begins with."""
    setting_limits.check_settings(trainer.cfg)
    binary_data.check_training_data(trainer)
    mixed_precision.check(trainer.cfg.common, trainer.cuda)
    workers.limit_waiting(trainer)
    _choose_checkpoint(cfg, trainer)
    wrap(type(trainer), "state_dict", save_identity)
    wrap(type(trainer), "load_checkpoint", setting_changes.check_and_load)
    wrap(type(trainer), "train_step", mixed_precision.skip_overflows_on_a_cpu)
    wrap(type(trainer), "save_checkpoint", saving.refuse_weights_that_are_no_numbers)
    for program in filter(None, map(sys.modules.get, TRAINING_PROGRAMS)):
        if hasattr(program, "validate_and_save"):
            wrap(program, "validate_and_save", stopping.validate_and_save)
            wrap(program, "train", _train)
    return load_checkpoint(cfg, trainer, **arguments)


def _train(train, *arguments):
    return workers.tell_of_a_lost_worker(
        lambda *each: stopping.train_an_epoch(train, *each), *arguments
    )


def _choose_checkpoint(cfg, trainer) -> None:
    """See to it that checkpoint_last.pt is whole; the first worker does.

    Shards of a model, which have a suffix each, are left alone: they must be of the
    same update.
    """
    if cfg.restore_file != "checkpoint_last.pt" or trainer.checkpoint_suffix:
        return
    error = None
    if trainer.data_parallel_rank == 0:
        try:
            used = repair_last_checkpoint(Path(cfg.save_dir))
        except (ValueError, OSError) as found:
            error = str(found)
        else:
            if used is not None:
                logger.warning(
                    "%s/checkpoint_last.pt was damaged and is kept as "
                    "checkpoint_last.pt.damaged; going on from %s, the newest "
                    "checkpoint that is whole",
                    cfg.save_dir,
                    used,
                )
    if trainer.data_parallel_world_size > 1:
        error = distributed_utils.broadcast_object(
            error,
            src_rank=0,
            group=trainer.data_parallel_process_group,
            dist_device=trainer.device,
        )
    if error is not None:
        raise ValueError(error)
