"""The training loop: build, epochs, validate, save, stop.

``main`` takes the place of fairseq's function of this name (fairseq_cli/train.py) where
``fairseq-train --user-dir`` has imported this package. Other ways to start call it.
"""

import argparse
import logging
import math
import os
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils, tasks, utils
from fairseq.data import data_utils, iterators
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import fsdp_enable_wrap, fsdp_wrap
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import meters, metrics
from omegaconf import OmegaConf

from ..plugin.data_checks import check_labels, check_training_data
from . import positions, signals, workers
from .checkpointer import Checkpointer
from .log import RunLog
from .same_run import check_checkpoint
from .settings import check_settings
from .start import last_of
from .trainer import Trainer
from .update_layout import set_update_layout

logger = logging.getLogger(__name__)


def main(cfg) -> None:
    """Train by a configuration, in this process; the same call again resumes.

    Args:
        cfg: fairseq's whole configuration, or the namespace of its options.

    Raises:
        ValueError: settings, data or the checkpoint are not what training can begin
            with; nothing has been changed.
        SystemExit: 75 after a signal, with a checkpoint.
    """
    if isinstance(cfg, argparse.Namespace):
        cfg = convert_namespace_to_omegaconf(cfg)
    utils.import_user_module(cfg.common)
    add_defaults(cfg)
    check_settings(cfg)
    metrics.reset()
    if cfg.common.log_file is not None:
        logger.addHandler(logging.FileHandler(filename=cfg.common.log_file))
    np.random.seed(cfg.common.seed)
    utils.set_torch_seed(cfg.common.seed)
    if distributed_utils.is_master(cfg.distributed_training):
        checkpoint_utils.verify_checkpoint_directory(cfg.checkpoint.save_dir)
    logger.info(cfg)
    trainer = _trainer(cfg)
    checkpointer = Checkpointer(trainer)
    try:
        with workers.reporting_lost_ones(trainer):
            _Run(trainer, checkpointer).train()
    finally:
        checkpointer.release()


def _trainer(cfg) -> Trainer:
    """The task, its model, its criterion, and the splits for validation."""
    task = tasks.setup_task(cfg.task)
    if cfg.distributed_training.ddp_backend == "fully_sharded":
        with fsdp_enable_wrap(cfg.distributed_training):
            model = fsdp_wrap(task.build_model(cfg.model))
    else:
        model = task.build_model(cfg.model)
    criterion = task.build_criterion(cfg.criterion)
    logger.info(model)
    for kind, made in (("task", task), ("model", model), ("criterion", criterion)):
        logger.info("%s: %s", kind, type(made).__name__)
    weights = list(model.parameters())
    logger.info(
        f"num. shared model params: {sum(p.numel() for p in weights):,} (num. trained: "
        f"{sum(p.numel() for p in weights if p.requires_grad):,})"
    )
    if not cfg.dataset.disable_validation:
        data_utils.raise_if_valid_subsets_unintentionally_ignored(cfg)
        if cfg.dataset.combine_valid_subsets:
            task.load_dataset("valid", combine=True, epoch=1)
        else:
            for subset in cfg.dataset.valid_subset.split(","):
                task.load_dataset(subset, combine=False, epoch=1)
    trainer = Trainer(cfg, task, model, criterion)
    logger.info(
        "training on %d devices", cfg.distributed_training.distributed_world_size
    )
    return trainer


class _Run:
    """One training, from where it starts to its end."""

    def __init__(self, trainer: Trainer, checkpointer: Checkpointer) -> None:
        self.trainer, self.checkpointer = trainer, checkpointer
        self.cfg, self.task = trainer.cfg, trainer.task
        self.subsets = self.cfg.dataset.valid_subset.split(",")
        self.max_epoch = self.cfg.optimization.max_epoch or math.inf
        self.log: RunLog

    def train(self) -> None:
        """All epochs that are left."""
        epochs = self._begin()
        if epochs is None:
            return
        optimization = self.cfg.optimization
        # in mid-epoch, the rate of the epoch's end is asked for
        rate = math.inf if epochs.iterations_in_epoch else self.trainer.get_lr()
        watch = meters.StopwatchMeter()
        watch.start()
        while epochs.next_epoch_idx <= self.max_epoch:
            if rate <= optimization.stop_min_lr:
                logger.info(
                    "stopping training: the learning rate %s is at --stop-min-lr", rate
                )
                break
            loss, is_done = train_epoch(self, epochs)
            if is_done:
                break
            rate = self.trainer.lr_step(epochs.epoch, loss)
            sharded = self._is_sharded()
            epochs = self.trainer.get_train_iterator(
                epochs.next_epoch_idx,
                load_dataset=sharded,
                disable_iterator_cache=sharded,
            )
        watch.stop()
        logger.info("done training in %.1f seconds", watch.sum)

    def _begin(self):
        """The iterator of the first epoch; None where the run is finished."""
        cfg, trainer = self.cfg, self.trainer
        workers.limit_waiting(trainer)
        workers.call_on_first_rank(trainer, self._check_data)
        self._stop_before_training()
        trainer.name_data()
        start = self.checkpointer.choose()
        if start.finished:
            last = os.fspath(last_of(trainer))
            workers.call_on_first_rank(trainer, check_checkpoint, trainer, last, False)
            logger.info(
                "the run is finished: %s; nothing is left to do, and no file changes",
                start.finished,
            )
            return None
        self.log = RunLog(trainer, begins=start.updates is None)
        set_update_layout(cfg, trainer.data_parallel_world_size)
        epochs = self.checkpointer.load(disable_iterator_cache=self._is_sharded())
        self._stop_before_training()
        return epochs

    def _check_data(self) -> None:
        data, dataset = getattr(self.cfg.task, "data", None), self.cfg.dataset
        splits = [dataset.train_subset]
        if not dataset.disable_validation:
            splits += self.subsets
        check_labels(self.task, splits)
        for split in splits if data else ():
            check_training_data(self.task, data, split)

    def _is_sharded(self) -> bool:
        return self.task.has_sharded_data("train")

    def _stop_before_training(self) -> None:
        """End if any worker was asked to; nothing is lost before the first update."""
        number = signals.request.of_any_worker(self.trainer)
        if number:
            self._die_without_checkpoints(number)
            where = "before the first update; nothing is lost"
            signals.request.leave(self.trainer, number, where)

    def _die_without_checkpoints(self, number: int) -> None:
        """As any other process of the signal, where nothing could be resumed."""
        for setting in ("no_save", "no_last_checkpoints", "no_save_optimizer_state"):
            if self.cfg.checkpoint[setting]:
                logger.info("%s=true: the signal ends the run unsaved", setting)
                signals.die(number)


@metrics.aggregate("train")
def train_epoch(run: _Run, epochs) -> tuple[float | None, bool]:
    """Train for one epoch, or what is left of it.

    Args:
        run: the training.
        epochs: the iterator.

    Returns:
        the loss of the first split of the last validation, None without one, and
        whether training is done.
    """
    cfg, trainer = run.cfg, run.trainer
    batches = epochs.next_epoch_itr(
        fix_batches_to_gpus=cfg.distributed_training.fix_batches_to_gpus,
        shuffle=epochs.next_epoch_idx > cfg.dataset.curriculum,
    )
    batches = iterators.GroupedIterator(
        batches,
        positions.frequency(cfg.optimization, epochs.epoch),
        skip_remainder_batch=getattr(cfg.optimization, "skip_remainder_batch", False),
    )
    progress = run.log.progress(batches, epochs.epoch)
    progress.update_config(_plain(cfg))
    trainer.begin_epoch(epochs.epoch)
    updates, result = trainer.get_num_updates(), None
    for number, samples in enumerate(progress):
        with (
            metrics.aggregate("train_inner"),
            torch.autograd.profiler.record_function(f"train_step-{number}"),
        ):
            stats = trainer.train_step(samples)
        if stats is not None:  # not out of memory, nor an overflow
            updates = trainer.get_num_updates()
            if updates % cfg.common.log_interval == 0:
                inner = _with_wall(metrics.get_smoothed_values("train_inner"))
                progress.log(inner, tag="train_inner", step=updates)
                metrics.reset_meters("train_inner")
        result = validate_and_save(run, epochs, not batches.has_next())
        if result[1]:
            break
    if result is None:
        raise ValueError(
            f"epoch {epochs.epoch} has no update: optimization.skip_remainder_batch="
            f"true, and its {len(epochs)} batches a worker are fewer than an update's"
        )
    logger.info("end of epoch %d (average epoch stats below)", epochs.epoch)
    stats = _with_wall(metrics.get_smoothed_values("train"))
    progress.print(stats, tag="train", step=updates)
    metrics.reset_meters("train")
    return result


def validate_and_save(run: _Run, epochs, ended: bool) -> tuple[float | None, bool]:
    """After an update: validate, save, and stop, as far as each is due.

    If a worker was asked to stop, the checkpoint is written before anything else, since
    a validation may take longer than what is left.

    Args:
        run: the training.
        epochs: the iterator.
        ended: whether the update was the epoch's last one.

    Returns:
        as ``train_epoch``.
    """
    checkpointer, trainer = run.checkpointer, run.trainer
    number = signals.request.of_any_worker(trainer)
    if number:
        checkpointer.save(epochs, None)
    is_done = _is_done(run)
    saves, validates = _what_is_due(run, epochs, ended, is_done)
    loss = None
    if validates:
        try:
            loss = validate(run, epochs)
        except KeyError:  # of a metric that there is not
            checkpointer.save(epochs, None)
            raise
    is_done |= not checkpointer.has_patience(loss)
    is_end = is_done or (ended and epochs.epoch >= run.max_epoch)
    if saves or is_end:
        path = checkpointer.save(epochs, loss, is_end=is_end)
        if path is not None and hasattr(run.task, "post_save"):
            run.task.post_save(path, trainer.get_num_updates())
    if number and not is_done:
        run._die_without_checkpoints(number)
        if loss is not None and not saves:  # the checkpoint is to know of it
            checkpointer.save(epochs, None, validated=loss)
        where = f"after update {trainer.get_num_updates()} with a checkpoint"
        signals.request.leave(trainer, number, where)
    return loss, is_done


def _is_done(run: _Run) -> bool:
    """Whether updates or hours are at their limit."""
    updates, limits = run.trainer.get_num_updates(), run.cfg.optimization
    hours = run.trainer.cumulative_training_time() / 3600
    if updates >= (limits.max_update or math.inf):
        logger.info(
            "stopping training: update %d of max_update=%d", updates, limits.max_update
        )
        return True
    if hours > (limits.stop_time_hours or math.inf):
        logger.info(
            "stopping training: %.2f hours of stop_time_hours=%s",
            hours,
            limits.stop_time_hours,
        )
        return True
    return False


def _what_is_due(run: _Run, epochs, ended: bool, is_done: bool) -> tuple[bool, bool]:
    """Whether a checkpoint and a validation are, by fairseq's rules."""
    cfg, updates = run.cfg, run.trainer.get_num_updates()
    may_validate = updates >= cfg.dataset.validate_after_updates

    def is_at(interval: int) -> bool:
        return interval > 0 and updates > 0 and updates % interval == 0

    saves = (
        (ended and epochs.epoch % cfg.checkpoint.save_interval == 0)
        or is_done
        or (is_at(cfg.checkpoint.save_interval_updates) and may_validate)
    )
    validates = (
        (saves and not ended)
        or (ended and epochs.epoch % cfg.dataset.validate_interval == 0)
        or is_done
        or is_at(cfg.dataset.validate_interval_updates)
    )
    return saves, validates and may_validate and not cfg.dataset.disable_validation


def validate(run: _Run, epochs) -> float:
    """Evaluate the model on each split; returns the metric of the first one.

    Raises:
        KeyError: no validation has --best-checkpoint-metric.
    """
    cfg, trainer = run.cfg, run.trainer
    if cfg.dataset.fixed_validation_seed is not None:
        utils.set_torch_seed(cfg.dataset.fixed_validation_seed)
    trainer.begin_valid_epoch(epochs.epoch)
    metric, losses = cfg.checkpoint.best_checkpoint_metric, []
    for subset in run.subsets:
        logger.info('begin validation on "%s" subset', subset)
        batches = trainer.get_valid_iterator(subset).next_epoch_itr(
            shuffle=False,
            set_dataset_epoch=False,  # masks are the same in all
        )
        progress = run.log.progress(batches, epochs.epoch, subset)
        # a new root, so that a validation's figures are not the training's
        with metrics.aggregate(new_root=True) as found:
            for number, sample in enumerate(progress):
                if number > (cfg.dataset.max_valid_steps or math.inf):
                    break
                trainer.valid_step(sample)
        stats = found.get_smoothed_values()
        stats["num_updates"] = trainer.get_num_updates()
        if metric not in stats:
            raise KeyError(
                f"checkpoint.best_checkpoint_metric={metric!r}: no validation has it; "
                f"allowed here: {', '.join(sorted(stats))}"
            )
        best = run.checkpointer.best_of(stats[metric])
        if not losses and best is not None:
            stats[f"best_{metric}"] = best
        if hasattr(run.task, "post_validate"):
            run.task.post_validate(trainer.get_model(), stats, found)
        progress.print(stats, tag=subset, step=trainer.get_num_updates())
        losses.append(stats[metric])
    return losses[0]


def _with_wall(stats: dict[str, Any]) -> dict[str, Any]:
    seconds = metrics.get_meter("default", "wall").elapsed_time
    return {**stats, "wall": round(seconds, 0)}


def _plain(cfg) -> dict[str, Any]:
    """For loggers that keep it; older components of fairseq have a namespace each."""
    config = OmegaConf.to_container(cfg)
    old = [key for key, each in config.items() if isinstance(each, argparse.Namespace)]
    return {k: v for k, v in config.items() if k not in old} | (
        {"args": vars(config[old[-1]])} if old else {}
    )
