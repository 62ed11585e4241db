"""The training loop: build, epochs, validate, save, stop.

``main`` replaces fairseq's function of this name (fairseq_cli/train.py) after
``fairseq-train --user-dir`` has imported this package. Other ways to start call it too.
"""

import argparse
import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fairseq import tasks, utils
from fairseq.data import data_utils, iterators
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import fsdp_enable_wrap, fsdp_wrap
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from omegaconf import OmegaConf

from ..data.whole_files import make_folder
from ..plugin.data_checks import check_labels, check_training_data
from ..plugin.models.gradient_recording import put_gradients_aside
from . import positions, signals, workers
from .checkpointer import Checkpointer
from .kernels import try_kernels
from .log import RunLog
from .same_run import check_checkpoint
from .settings import check_settings
from .start import last_of, reached
from .trainer import Trainer
from .update_layout import check_update

logger = logging.getLogger(__name__)


def main(cfg, accepted: Callable[[], None] | None = None) -> None:
    """Train by a configuration, in this process; a second call resumes.

    Args:
        cfg: fairseq's whole configuration, or the namespace of its options.
        accepted: the first rank calls it when the checkpoint is loaded.

    Raises:
        ValueError: a refusal; no file has changed, but a damaged last checkpoint.
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
        make_folder(Path(cfg.checkpoint.save_dir), "checkpoint.save_dir")
    logger.info(cfg)
    trainer = _trainer(cfg)
    checkpointer = Checkpointer(trainer)
    try:
        with workers.reporting_lost_ones(trainer):
            _Run(trainer, checkpointer).train(accepted)
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
    logger.info("%s\n%s", model, type(criterion).__name__)
    weights = list(model.parameters())
    count = sum(each.numel() for each in weights)
    trained = sum(each.numel() for each in weights if each.requires_grad)
    logger.info(f"num. shared model params: {count:,} (num. trained: {trained:,})")
    if not cfg.dataset.disable_validation:
        data_utils.raise_if_valid_subsets_unintentionally_ignored(cfg)
        combine = cfg.dataset.combine_valid_subsets
        subsets = "valid" if combine else cfg.dataset.valid_subset
        for subset in subsets.split(","):
            task.load_dataset(subset, combine=bool(combine), epoch=1)
    return Trainer(cfg, task, model, criterion)


class _Run:
    """One training, from where it starts to its end."""

    def __init__(self, trainer: Trainer, checkpointer: Checkpointer) -> None:
        self.trainer, self.checkpointer = trainer, checkpointer
        self.cfg, self.task = trainer.cfg, trainer.task
        self.subsets = self.cfg.dataset.valid_subset.split(",")
        self.max_epoch = self.cfg.optimization.max_epoch or math.inf
        self.log: RunLog

    def train(self, accepted: Callable[[], None] | None) -> None:
        """Train all remaining epochs."""
        epochs = self._begin(accepted)
        if epochs is None:
            return
        # in the middle of an epoch, compare the rate at the epoch's end
        rate = math.inf if epochs.iterations_in_epoch else self.trainer.get_lr()
        began = time.monotonic()
        while epochs.next_epoch_idx <= self.max_epoch:
            if rate <= self.cfg.optimization.stop_min_lr:
                logger.info("stopping training: the rate %s is at --stop-min-lr", rate)
                break
            loss, is_done = self._train_epoch(epochs)
            if is_done:
                break
            rate = self.trainer.lr_step(epochs.epoch, loss)
            number, sharded = epochs.next_epoch_idx, self.task.has_sharded_data("train")
            epochs = self.trainer.get_train_iterator(number, sharded, sharded)
        logger.info("done training in %.1f seconds", time.monotonic() - began)

    def _begin(self, accepted: Callable[[], None] | None):
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
            logger.info("the run is finished: %s; no file changes", start.finished)
            return None
        check_update(cfg, trainer.data_parallel_world_size)
        try_kernels(trainer)
        sharded = self.task.has_sharded_data("train")
        epochs = self.checkpointer.load(disable_iterator_cache=sharded)
        # after all that may refuse: it renames another run's
        self.log = RunLog(trainer, begins=start.updates is None)
        gradients = getattr(cfg.model, "gradient_statistics", None)
        if gradients and start.updates is None:
            workers.call_on_first_rank(trainer, put_gradients_aside, Path(gradients))
        if accepted:
            workers.call_on_first_rank(trainer, accepted)
        self._stop_before_training()
        if place := self.checkpointer.unvalidated:
            loss, is_done = self._validate_and_save(place, place.end_of_epoch())
            if is_done:
                return None
            if place.end_of_epoch():
                trainer.lr_step(place.epoch, loss)
            self.checkpointer.unvalidated = None
        return epochs

    def _check_data(self) -> None:
        data, dataset = getattr(self.cfg.task, "data", None), self.cfg.dataset
        validated = [] if dataset.disable_validation else self.subsets
        splits = [dataset.train_subset, *validated]
        check_labels(self.task, splits)
        for split in splits if data else ():
            check_training_data(self.task, data, split, split == splits[0])

    def _stop_before_training(self) -> None:
        """End if any worker has a signal; nothing is lost before the first update."""
        number = signals.request.of_any_worker(self.trainer)
        if number:
            self._leave(number, "before the first update; nothing is lost")

    def _leave(self, number: int, where: str) -> None:
        """End with exit code 75, or by the signal if nothing can be resumed."""
        for setting in ("no_save", "no_last_checkpoints", "no_save_optimizer_state"):
            if self.cfg.checkpoint[setting]:
                logger.info("%s=true: the signal ends the run unsaved", setting)
                signals.die(number)
        signals.request.leave(self.trainer, number, where)

    @metrics.aggregate("train")
    def _train_epoch(self, epochs) -> tuple[float | None, bool]:
        """Train for one epoch, or the rest of it.

        Returns:
            the loss of the last validation on the first split, None without one, and
            whether training is done.
        """
        cfg, trainer = self.cfg, self.trainer
        batches = iterators.GroupedIterator(
            epochs.next_epoch_itr(
                fix_batches_to_gpus=cfg.distributed_training.fix_batches_to_gpus,
                shuffle=epochs.next_epoch_idx > cfg.dataset.curriculum,
            ),
            positions.frequency(cfg.optimization, epochs.epoch),
            getattr(cfg.optimization, "skip_remainder_batch", False),
        )
        progress = self.log.progress(batches, epochs.epoch)
        progress.update_config(_plain(cfg))
        trainer.begin_epoch(epochs.epoch)
        result = None
        for samples in progress:
            with metrics.aggregate("train_inner"):
                stats = trainer.train_step(samples)
            updates = trainer.get_num_updates()
            # None: out of memory, or an overflow; the weights have not changed
            if stats is None and batches.has_next():
                continue
            if stats is not None and updates % cfg.common.log_interval == 0:
                progress.log(_stats("train_inner"), tag="train_inner", step=updates)
                metrics.reset_meters("train_inner")
            ended = not batches.has_next()
            try:
                result = self._validate_and_save(epochs, ended)
            except SystemExit:  # a resumed run begins with the next epoch
                if ended:
                    progress.print(_stats("train"), tag="train", step=updates)
                raise
            if result[1]:
                break
        if result is None:
            raise ValueError(
                f"epoch {epochs.epoch} has no update: with skip_remainder_batch=true "
                f"its {len(epochs)} batches a worker are fewer than an update's"
            )
        progress.print(_stats("train"), tag="train", step=updates)
        metrics.reset_meters("train")
        return result

    def _validate_and_save(self, epochs, ended: bool) -> tuple[float | None, bool]:
        """Validate and save if due after an update, the epoch's last if ``ended``.

        After a signal the checkpoint is written first: a validation may take longer
        than the time that is left. Returns as ``_train_epoch``.
        """
        checkpointer, trainer = self.checkpointer, self.trainer
        number = signals.request.of_any_worker(trainer)
        is_done = self._is_done()
        saves, validates = self._what_is_due(epochs, ended, is_done)
        if number:
            checkpointer.save(epochs, None, unvalidated=validates)
        loss = None
        if validates:
            try:
                loss = self.validate(epochs)
            except KeyError:  # the metric does not exist
                checkpointer.save(epochs, None, unvalidated=True)
                raise
        is_done |= not checkpointer.has_patience(loss)
        is_end = is_done or (ended and epochs.epoch >= self.max_epoch)
        if saves or is_end:
            path = checkpointer.save(epochs, loss, is_end=is_end)
            if path is not None and hasattr(self.task, "post_save"):
                self.task.post_save(path, trainer.get_num_updates())
        if number and not is_done:
            if loss is not None and not saves:  # a checkpoint must record the loss
                checkpointer.save(epochs, None, validated=loss)
            updates = trainer.get_num_updates()
            self._leave(number, f"after update {updates} with a checkpoint")
        return loss, is_done

    def _is_done(self) -> bool:
        """Whether the updates or hours have reached their limit."""
        limit = reached(
            self.cfg,
            max_update=self.trainer.get_num_updates(),
            stop_time_hours=self.trainer.cumulative_training_time() / 3600,
        )
        if limit is not None:
            logger.info("stopping training: %s", limit)
        return limit is not None

    def _what_is_due(self, epochs, ended: bool, is_done: bool) -> tuple[bool, bool]:
        """Whether a checkpoint and a validation are due, by fairseq's rules."""
        updates, epoch = self.trainer.get_num_updates(), epochs.epoch
        checkpoint, dataset = self.cfg.checkpoint, self.cfg.dataset
        may_validate = updates >= dataset.validate_after_updates

        def is_due(every_epoch: int, every_update: int) -> bool:
            at_update = 0 < every_update <= updates and updates % every_update == 0
            at_end = ended and epoch % every_epoch == 0
            return is_done or at_end or (at_update and may_validate)

        saves = is_due(checkpoint.save_interval, checkpoint.save_interval_updates)
        validates = (saves and not ended) or is_due(
            dataset.validate_interval, dataset.validate_interval_updates
        )
        return saves, validates and may_validate and not dataset.disable_validation

    def validate(self, epochs) -> float:
        """Evaluate the model on each split; returns the metric of the first one.

        Raises:
            KeyError: no validation logs --best-checkpoint-metric.
        """
        cfg, trainer = self.cfg, self.trainer
        if cfg.dataset.fixed_validation_seed is not None:
            utils.set_torch_seed(cfg.dataset.fixed_validation_seed)
        trainer.begin_valid_epoch(epochs.epoch)
        metric, losses = cfg.checkpoint.best_checkpoint_metric, []
        for subset in self.subsets:
            logger.info('begin validation on "%s" subset', subset)
            batches = trainer.get_valid_iterator(subset)
            # masks are the same in all validations
            batches = batches.next_epoch_itr(shuffle=False, set_dataset_epoch=False)
            if cfg.dataset.max_valid_steps:  # fairseq's limit, and one more
                batches.take(cfg.dataset.max_valid_steps + 1)
            progress = self.log.progress(batches, epochs.epoch, subset)
            # a new root, so that the validation's figures stay out of the training's
            with metrics.aggregate(new_root=True) as found:
                for sample in progress:
                    trainer.valid_step(sample)
            stats = found.get_smoothed_values()
            stats["num_updates"] = trainer.get_num_updates()
            if metric not in stats:
                raise KeyError(
                    f"checkpoint.best_checkpoint_metric={metric!r}: no validation has "
                    f"it; allowed here: {', '.join(sorted(stats))}"
                )
            best = self.checkpointer.best_of(stats[metric])
            if not losses and best is not None:
                stats[f"best_{metric}"] = best
            if hasattr(self.task, "post_validate"):
                self.task.post_validate(trainer.get_model(), stats, found)
            progress.print(stats, tag=subset, step=trainer.get_num_updates())
            losses.append(stats[metric])
        return losses[0]


def _stats(name: str) -> dict[str, Any]:
    seconds = metrics.get_meter("default", "wall").elapsed_time
    return {**metrics.get_smoothed_values(name), "wall": round(seconds, 0)}


def _plain(cfg) -> dict[str, Any]:
    """Plain values for loggers; older components of fairseq have namespaces."""
    config = OmegaConf.to_container(cfg)
    old = [key for key, each in config.items() if isinstance(each, argparse.Namespace)]
    args = {"args": vars(config[old[-1]])} if old else {}
    return {key: each for key, each in config.items() if key not in old} | args
