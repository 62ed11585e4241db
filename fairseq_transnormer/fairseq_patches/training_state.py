"""What training remembers and fairseq leaves out of its checkpoints.

Without it a run that was resumed stops early, or shrinks its learning rate, at another
update than one that nothing happened to.
"""

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

from fairseq import checkpoint_utils
from torch.optim.lr_scheduler import ReduceLROnPlateau

# fairseq_cli/train.py under each name that it may have
TRAINING_PROGRAMS = ("fairseq_cli.train", "__main__", "__mp_main__")
# in the extra_state of a checkpoint
EARLY_STOPPING = "early_stopping"
VALID_LOSS = "valid_loss"
EMA_COUNTER = "ema_update_freq_counter"
# in the state of reduce_lr_on_plateau, of torch's scheduler in it
PLATEAU_FIELDS = ("num_bad_epochs", "cooldown_counter")


def training_programs() -> Iterator[ModuleType]:
    """fairseq_cli/train.py, under each name under which it is loaded."""
    for program in filter(None, map(sys.modules.get, TRAINING_PROGRAMS)):
        if hasattr(program, "validate_and_save"):
            yield program


def save_training_state(save, trainer, filename, extra_state):
    """Around ``Trainer.save_checkpoint``."""
    extra_state = {**extra_state, **getattr(trainer, "kept", {})}
    for program in training_programs():
        counters = vars(program.should_stop_early)
        if "best" in counters:
            best, runs = float(counters["best"]), counters["num_runs"]
            extra_state[EARLY_STOPPING] = {"best": best, "num_runs": runs}
    if trainer.cfg.ema.store_ema:
        extra_state[EMA_COUNTER] = trainer.ema.update_freq_counter
    return save(trainer, filename, extra_state)


def forget_earlier_runs() -> None:
    """fairseq keeps these in functions: of another run in this process, maybe."""
    for program in training_programs():
        for name in ("best", "num_runs"):
            vars(program.should_stop_early).pop(name, None)


def restore(trainer, extra_state: dict) -> None:
    """Take over what ``save_training_state`` has added, after fairseq's own."""
    for program in training_programs():
        vars(program.should_stop_early).update(extra_state.get(EARLY_STOPPING, {}))
    if trainer.cfg.ema.store_ema:
        trainer.ema.update_freq_counter = extra_state.get(EMA_COUNTER, 0)


def forget_validations(trainer, extra_state: dict) -> None:
    """Which was the best, and since when none was: they were of another figure."""
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    for name in (EARLY_STOPPING, VALID_LOSS, "val_loss"):
        extra_state.pop(name, None)
    plateau = getattr(trainer.lr_scheduler, "lr_scheduler", None)
    if isinstance(plateau, ReduceLROnPlateau):
        plateau._reset()


def average_each_once(step, ema, new_model, updates=None):
    """Around ema.py, ``EMA._step_internal``, which goes through names.

    Tied weights have two, and would be averaged twice: with the square of the decay.
    Integers, such as informer's draws, have no average, and are the model's.
    """
    averages = ema.fp32_params if ema.config.ema_fp32 else ema.model.state_dict()
    first_names = {}
    for name, average in averages.items():
        if not isinstance(average, dict):  # fairseq leaves these out
            first_names.setdefault((average.data_ptr(), average.shape), name)
    repeated = averages.keys() - set(first_names.values())
    weights = new_model.state_dict()
    once = {name: x for name, x in weights.items() if name not in repeated}
    integers = {
        name
        for name, x in once.items()
        if not isinstance(x, dict) and not (x.is_floating_point() or x.is_complex())
    }
    ema.skip_keys = {*ema.skip_keys, *integers}
    return step(ema, SimpleNamespace(state_dict=lambda: once), updates)


def restore_with_versions(restore, ema, state_dict, build_fp32_params=False):
    """Around ema.py, ``EMA.restore``.

    An average has no ``version``, and weights without one are to fairseq's transformer
    those of a time when no LayerNorm followed the last layer: it would drop its own.
    """
    own = ema.model.state_dict()
    versions = {name: x for name, x in own.items() if "version" in name}
    restore(ema, {**versions, **state_dict}, build_fp32_params)


def finish_epoch(trainer, extra_state: dict) -> None:
    """fairseq_cli/train.py, main: the scheduler sees an epoch's validation loss after
    the checkpoint of the epoch's end has been written."""
    position = extra_state["train_iterator"]
    if position["epoch"] > 1 and position.get("iterations_in_epoch", 0) == 0:
        loss = extra_state.get(VALID_LOSS, extra_state.get("val_loss"))
        trainer.lr_step(position["epoch"] - 1, loss)


def save_plateau_counters(state_dict, scheduler):
    own = {each: getattr(scheduler.lr_scheduler, each) for each in PLATEAU_FIELDS}
    return {**state_dict(scheduler), **own}


def load_plateau_counters(load, scheduler, state_dict):
    load(scheduler, state_dict)
    for name in PLATEAU_FIELDS:
        if name in state_dict:
            setattr(scheduler.lr_scheduler, name, state_dict[name])
