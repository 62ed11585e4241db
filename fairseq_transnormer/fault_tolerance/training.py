"""Where fault tolerance enters training: fairseq-train, Hydra, scripts and runner."""

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from ..dictionary_identity import save_identity
from ..wrapping import wrap
from . import (
    binary_data,
    mixed_precision,
    resuming,
    saving,
    setting_changes,
    setting_limits,
    stopping,
    training_state,
    workers,
)


def install() -> None:
    """Put everything around fairseq's functions; training begins in the first."""
    wrap(checkpoint_utils, "load_checkpoint", _begin)
    wrap(distributed_utils, "call_main", stopping.call_main)
    wrap(_MultiProcessingDataLoaderIter, "__init__", stopping.start_loaders)
    saving.install()
    mixed_precision.install()
    training_state.install()
    workers.install()
    binary_data.install()
    setting_limits.install()


def _begin(load_checkpoint, cfg, trainer, **arguments):
    """Around checkpoint_utils.py, load_checkpoint, which training begins with."""
    stopping.note_signals()
    setting_limits.check_settings(trainer.cfg)
    binary_data.check_training_data(trainer)
    mixed_precision.check(trainer.cfg.common, trainer.cuda)
    workers.limit_waiting(trainer)
    wrap(type(trainer), "state_dict", save_identity)
    wrap(type(trainer), "load_checkpoint", setting_changes.check_and_load)
    wrap(type(trainer), "train_step", mixed_precision.skip_overflows_on_a_cpu)
    wrap(type(trainer), "save_checkpoint", saving.refuse_weights_that_are_no_numbers)
    wrap(type(trainer), "save_checkpoint", training_state.add_and_save)
    for program in training_state.training_programs():
        wrap(program, "validate_and_save", stopping.validate_and_save)
        wrap(program, "train", _train)
    stopping.leave_before_training(cfg, trainer)
    return workers.tell_of_a_lost_worker(
        lambda: resuming.load_checkpoint(load_checkpoint, cfg, trainer, **arguments),
        trainer,
    )


def _train(train, cfg, trainer, task, epoch_itr):
    return workers.tell_of_a_lost_worker(
        lambda: stopping.train_an_epoch(train, cfg, trainer, task, epoch_itr), trainer
    )
