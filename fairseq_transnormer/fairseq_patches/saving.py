"""Saving: one clear error where there is no room, and nothing that is not a number."""

import copy
import errno
import logging
import math
import os
import shutil
import time
from types import SimpleNamespace

import torch
from fairseq.file_io import IOPathManager, PathManager

from ..data.whole_files import copy_whole, write_whole

logger = logging.getLogger(__name__)

# trainer.py, train_step: what a run that ends by an error leaves for those who look
# for its cause
CRASH = "crash.pt"
# how the pattern of --keep-best-checkpoints begins
BEST = r"checkpoint\.best"
ATTEMPTS = 3
SECONDS_BETWEEN_ATTEMPTS = 2.5
# another attempt would end in the same way
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_finite_weights(save, trainer, filename, extra_state):
    """Around ``Trainer.save_checkpoint``: the last good checkpoint stays.

    fairseq looks at gradients alone. Weights that an optimiser's step made NaN or
    infinite show in the next update, which is too late if a checkpoint lies between.
    """
    if os.path.basename(filename) != CRASH:
        named = list(trainer.get_model().named_parameters())
        finite = torch.stack([weight.detach().isfinite().all() for _, weight in named])
        if not finite.all():
            name = named[int((~finite).nonzero()[0])][0]
            raise FloatingPointError(
                f"weights are NaN or infinite after update "
                f"{trainer.get_num_updates()}, {name} first; {filename} is not "
                "written, and earlier checkpoints stay"
            )
    return save(trainer, filename, extra_state)


def find_negative_scores(checkpoint_paths, path, pattern=None, **keywords):
    """Around checkpoint_utils.py, ``checkpoint_paths``: a correlation may be negative,
    and fewer than --keep-best-checkpoints have none that is the worst.

    fairseq looks for scores without a sign, so that ``keep_best_checkpoints`` neither
    counts nor removes ``checkpoint.best_mcc_-7.1230.pt``.
    """
    if pattern is None:
        return checkpoint_paths(path, **keywords)
    with_sign = pattern.replace(r"_(\d+\.?\d*)", r"_(-?\d+\.?\d*)")
    found = checkpoint_paths(path, with_sign, **keywords)
    if pattern.startswith(BEST) and len(found) < getattr(save_all_asked_for, "best", 0):
        # names of the worst there can be, by either direction: the next one is better
        end = pattern.rpartition(")")[2].replace("\\", "")
        return [f"_inf{end}", *found, f"_-inf{end}"]
    return found


def save_all_asked_for(save, cfg, trainer, epoch_itr, val_loss):
    """checkpoint_utils.py, save_checkpoint: one of --save-interval-updates that falls
    on an epoch's end is left out, and one of fewer than --keep-best-checkpoints that is
    not the best."""
    save_all_asked_for.best = cfg.keep_best_checkpoints
    interval, end = cfg.save_interval_updates, epoch_itr.end_of_epoch()
    if end and interval > 0 and trainer.get_num_updates() % interval == 0:
        alone = copy.deepcopy(cfg)
        alone.no_last_checkpoints, alone.keep_best_checkpoints = True, 0
        within = SimpleNamespace(
            epoch=epoch_itr.epoch,
            end_of_epoch=lambda: False,
            state_dict=epoch_itr.state_dict,
        )
        save(alone, trainer, within, val_loss)
    return save(cfg, trainer, epoch_itr, val_loss)


def check_finite_loss(save, cfg, trainer, epoch_itr, val_loss):
    """checkpoint_utils.py, save_checkpoint: after a NaN the next one is the best.

    Of other metrics some are infinite for good reason, as a perplexity.
    """
    metric = cfg.best_checkpoint_metric
    if val_loss is not None and (
        math.isnan(val_loss) or (metric == "loss" and math.isinf(val_loss))
    ):
        # fairseq's sentence_prediction has scipy's correlations
        hint = "; criterion=sentence_prediction_metrics has 0 for constant predictions"
        raise FloatingPointError(
            f"the validation {metric} is {float(val_loss)} after update "
            f"{trainer.get_num_updates()}; no checkpoint is written, and earlier ones "
            f"stay{hint if metric not in ('loss', 'ppl') else ''}"
        )
    return save(cfg, trainer, epoch_itr, val_loss)


def save_whole(save, state, filename, async_write=False):
    """checkpoint_utils.py, torch_persistent_save and _torch_persistent_save.

    There, a second attempt writes after the half file of the first, and the result
    takes the place of a good checkpoint; an attempt takes no account of its reason.
    """
    if async_write or PathManager.path_requires_pathmanager(filename):
        return save(state, filename, async_write)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return write_whole(filename, lambda file: torch.save(state, file))
        except Exception as error:
            cause = _system_error(error)
            if cause is None:
                raise
            if cause.errno in NO_ROOM or attempt == ATTEMPTS:
                return _fail(filename, cause)
            logger.warning("%s: %s; trying again", filename, cause)
        time.sleep(SECONDS_BETWEEN_ATTEMPTS)


def copy_over(copy, src_path, dst_path, overwrite=False):
    """file_io.py, PathManager.copy: a kill leaves half of checkpoint_last.pt."""
    if not overwrite or IOPathManager is not None:
        return copy(src_path, dst_path, overwrite)
    try:
        copy_whole(src_path, dst_path)
    except OSError as error:
        _fail(dst_path, error)
    return True


def _system_error(error: BaseException | None) -> OSError | None:
    """The error of the operating system that led to what ``torch.save`` raises."""
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error


def _fail(filename: str, cause: OSError) -> None:
    free = shutil.disk_usage(os.path.dirname(filename) or ".").free
    message = (
        f"{filename} cannot be written: {cause.strerror}, {free / 1e6:.1f} MB are "
        "free. Checkpoints written before are untouched; when there is room, the same "
        "command resumes from the last one"
    )
    if os.path.basename(filename) == CRASH:  # the error that it was for comes next
        logger.error(message)
        return
    raise OSError(cause.errno, message) from None
