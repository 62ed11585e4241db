"""Checkpoints of a run: load them at its start, save them, and keep the best ones.

The best validation depends on the validation data, metric and settings. If one of them
changes, the search for the best starts again.
"""

import ast
import logging
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..checkpoints.files import copy_checkpoint
from . import positions, signals
from .folder_lock import FolderLock
from .start import (
    EARLY_STOPPING,
    RESETS,
    STARTED_FROM,
    UNVALIDATED,
    Origin,
    Start,
    choose_start,
    last_of,
    reached,
)
from .workers import call_on_first_rank

logger = logging.getLogger(__name__)

# in the extra_state of a checkpoint
VALID_LOSS = "valid_loss"
POSITION = "train_iterator"
# suffix of old best checkpoints, which fairseq does not count
BEFORE = ".before"


class Checkpointer:
    """Loads and saves the checkpoints of a run.

    Attributes:
        start: where the run starts; set by ``choose``.
        unvalidated: the iterator's place at a loaded checkpoint's missing validation.
    """

    def __init__(self, trainer) -> None:
        self._trainer, self._cfg = trainer, trainer.cfg.checkpoint
        self._folder = Path(self._cfg.save_dir)
        self._lock = FolderLock(self._folder)
        self._best: float | None = None
        # for --patience: the best validation, and how many since were not better
        self._early: dict[str, Any] | None = None
        self._has_saved = False
        self.start: Start
        self.unvalidated: SimpleNamespace | None = None

    # at the start

    def choose(self) -> Start:
        """Decide where the run starts, for all workers; see ``choose_start``."""
        found = call_on_first_rank(
            self._trainer, lambda: vars(choose_start(self._trainer, self._lock))
        )
        self.start = Start(**found)
        return self.start

    def load(self, **options):
        """Load the checkpoint of the start, if there is one.

        Args:
            options: of ``Trainer.get_train_iterator``.

        Returns:
            the iterator of the next epoch.

        Raises:
            ValueError: the checkpoint is not of this run, or leaves nothing to train.
        """
        path, resets = self._source()
        trainer, cfg = self._trainer, self._cfg
        extra = trainer.load_checkpoint(
            path,
            "reset_optimizer" in resets,
            "reset_lr_scheduler" in resets,
            ast.literal_eval(cfg.optimizer_overrides),
            "reset_meters" in resets,
        )
        if extra is not None and "reset_dataloader" not in resets:
            position = extra[POSITION]
            epochs = trainer.get_train_iterator(position["epoch"], **options)
            positions.restore(epochs, position)
            own = extra.get(type(trainer.task).__name__)
            if own and hasattr(trainer.task, "set_checkpoint_dict"):
                trainer.task.set_checkpoint_dict(own)
        else:
            epochs = trainer.get_train_iterator(1, **options)
        trainer.lr_step(epochs.epoch)
        if self.start.updates is None:
            self._check_something_is_left(epochs, path)
        else:
            updates = trainer.get_num_updates()
            logger.info("resumed at update %d from %s", updates, path)
        if extra and not {"reset_optimizer", "reset_meters"} & resets:
            self._take_over(extra)
            if not {"reset_lr_scheduler", "reset_dataloader"} & resets:
                self._finish_epoch(extra)
        epoch = epochs.epoch
        positions.begin_with_whole_update(epochs, trainer.cfg)
        if epochs.epoch > epoch and trainer.task.has_sharded_data("train"):
            epochs = trainer.get_train_iterator(epochs.epoch, **options)
        return epochs

    def _source(self) -> tuple[str, set[str]]:
        """The checkpoint to load, which may not exist, and the parts to reset."""
        cfg, last = self._cfg, os.fspath(last_of(self._trainer))
        if self.start.updates is not None:
            return last, set()
        asked = Origin(**self.start.started_from)
        if asked.finetune_from_model is None:
            suffix, other = self._trainer.checkpoint_suffix, cfg.get("continue_once")
            if asked.restore_file is not None:
                other = cfg.restore_file.replace(".pt", f"{suffix}.pt")
            return other or last, set(asked.resets)
        if asked.resets or asked.restore_file:
            raise ValueError(
                "--finetune-from-model itself resets all, once; allowed with it: "
                "neither --restore-file nor --reset-*"
            )
        return cfg.finetune_from_model, set(RESETS)

    def _take_over(self, extra: dict) -> None:
        """Take over the best of earlier validations, if their figure is the same."""
        if not self.start.validated_by:
            self._best, self._early = extra.get("best"), extra.get(EARLY_STOPPING)
            return
        for name in (VALID_LOSS, "val_loss"):
            extra.pop(name, None)
        self._trainer.forget_validations()
        if not self._cfg.no_save:
            call_on_first_rank(self._trainer, self._put_best_aside)
        logger.warning(
            "earlier validations had %s: the best and --patience start again",
            ", ".join(self.start.validated_by),
        )

    def _put_best_aside(self) -> None:
        """Rename those of --keep-best-checkpoints, so that they do not count."""
        for path in self._folder.glob("checkpoint.best_*.pt"):
            os.replace(path, path.with_name(f"{path.name}{BEFORE}"))

    def _finish_epoch(self, extra: dict) -> None:
        """Pass an epoch's validation loss to the scheduler, if it is not to come yet.

        It comes after the checkpoint of the epoch's end has been written.
        """
        position = extra[POSITION]
        ended = position["epoch"] > 1 and position.get("iterations_in_epoch", 0) == 0
        epoch = position["epoch"] - ended
        # a kill may have left shards of both kinds
        if signals.most_of_workers(self._trainer, int(extra.get(UNVALIDATED, False))):
            state = {"end_of_epoch": lambda: ended, "state_dict": lambda: position}
            self.unvalidated = SimpleNamespace(epoch=epoch, **state)
        elif ended:
            loss = extra.get(VALID_LOSS, extra.get("val_loss"))
            self._trainer.lr_step(epoch, loss)

    def _check_something_is_left(self, epochs, path: str) -> None:
        """Refuse another run's checkpoint that has reached this run's limits.

        fairseq trains one update more than max_update. Beyond max_epoch, or at
        --stop-min-lr, it ends with exit code 0 and no checkpoint.
        """
        trainer, updates = self._trainer, self._trainer.get_num_updates()
        ended = epochs.next_epoch_idx - 1
        if end := reached(trainer.cfg, max_update=updates, max_epoch=ended):
            raise ValueError(
                f"{path} leaves nothing to train: it is after {end}; allowed: a larger "
                "limit, or --reset-optimizer and --reset-dataloader, which count from 0"
            )
        rate, least = trainer.get_lr(), trainer.cfg.optimization.stop_min_lr
        if rate <= least and not epochs.iterations_in_epoch:
            raise ValueError(
                f"optimization.stop_min_lr={least}: training starts with a learning "
                f"rate of {rate}, and would end immediately; allowed: less, such as -1"
            )

    def release(self) -> None:
        """Release the folder for other runs."""
        self._lock.release()

    # validations

    def _rank(self, loss: float) -> float:
        """A value that is larger for better validations."""
        return loss if self._cfg.maximize_best_checkpoint_metric else -loss

    def best_of(self, loss: float) -> float | None:
        """The best validation of the run, including this one, for the log."""
        return None if self._best is None else max(self._best, loss, key=self._rank)

    def has_patience(self, loss: float | None) -> bool:
        """Count a validation; returns whether --patience lets the run continue."""
        if loss is None or self._cfg.patience <= 0:
            return True
        early = self._early
        if early is None or self._rank(loss) > self._rank(early["best"]):
            self._early = {"best": float(loss), "num_runs": 0}
            return True
        runs = early["num_runs"] + 1
        self._early = {**early, "num_runs": runs}
        if runs >= self._cfg.patience:
            logger.info("early stop: no better validation for %d runs", runs)
        return runs < self._cfg.patience

    # saving

    def save(
        self,
        epochs,
        loss: float | None,
        validated: float | None = None,
        is_end: bool = False,
        unvalidated: bool = False,
    ):
        """Write the checkpoints that are due; returns the path of one, or None.

        Args:
            epochs: the iterator.
            loss: of a validation of these weights, or None.
            validated: loss of a validation that has been counted, for the schedule.
            is_end: no update follows; a run that has saved nothing saves now.
            unvalidated: a validation is due, which the resumed run must make up for.

        Raises:
            FloatingPointError: the loss or a weight is not finite.
            OSError: the disk is full; earlier checkpoints stay.
        """
        cfg, trainer = self._cfg, self._trainer
        self._check_loss(loss)
        is_best = loss is not None and (
            self._best is None or self._rank(loss) >= self._rank(self._best)
        )
        self._best = loss if is_best else self._best
        if cfg.no_save:
            return None
        trainer.consolidate_optimizer()
        if not trainer.should_save_checkpoint_on_current_rank:
            if trainer.always_call_state_dict_during_save_checkpoint:
                trainer.state_dict()
            return None
        began = time.monotonic()
        self._folder.mkdir(parents=True, exist_ok=True)  # it may have been moved away
        names = list(self._names(epochs, loss, is_best))
        if is_end and not (names or self._has_saved):
            logger.warning("this run has saved no checkpoint: it saves its end")
            names = [last_of(trainer).name]
        if not names:
            return None
        first, *others = (self._folder / name for name in names)
        extra = self._extra(epochs, loss, validated) | {UNVALIDATED: unvalidated}
        trainer.save_checkpoint(os.fspath(first), extra)
        for path in others:
            copy_checkpoint(first, path)
        self._has_saved = True
        logger.info(
            "Saved checkpoint %s (epoch %d @ %d updates, score %s) (writing took %.2f "
            "seconds)",
            *(first, epochs.epoch, trainer.get_num_updates(), loss),
            time.monotonic() - began,
        )
        self._remove_old()
        return os.fspath(first)

    def _check_loss(self, loss: float | None) -> None:
        """Refuse NaN: any later validation would count as better. Infinity may pass."""
        metric = self._cfg.best_checkpoint_metric
        is_infinite = metric == "loss" and math.isinf(loss or 0)
        if loss is None or not (is_infinite or math.isnan(loss)):
            return
        # fairseq's sentence_prediction has scipy's correlations
        hint = "; criterion=sentence_prediction_metrics has 0 for constant predictions"
        raise FloatingPointError(
            f"the validation {metric} is {float(loss)} after update "
            f"{self._trainer.get_num_updates()}; no checkpoint is written, and earlier "
            f"ones stay{hint if metric not in ('loss', 'ppl') else ''}"
        )

    def _names(self, epochs, loss: float | None, is_best: bool) -> Iterator[str]:
        """fairseq's names of the checkpoints that are due."""
        cfg, suffix = self._cfg, self._trainer.checkpoint_suffix
        epoch, updates = epochs.epoch, self._trainer.get_num_updates()
        every, ended = cfg.save_interval_updates, epochs.end_of_epoch()
        # the best first: a run that resumes from another one never writes it
        if is_best:
            yield f"checkpoint_best{suffix}.pt"
        if loss is not None and cfg.keep_best_checkpoints > 0:
            kept = [self._rank(score) for score, _ in self._kept_best()]
            if len(kept) < cfg.keep_best_checkpoints or self._rank(loss) >= kept[-1]:
                # ranked by this number; fairseq has 3 decimals. Equal scores have
                # different updates
                score = f"{cfg.best_checkpoint_metric}_{loss:.9f}{updates}"
                yield f"checkpoint.best_{score}{suffix}.pt"
        if ended and not cfg.no_epoch_checkpoints and epoch % cfg.save_interval == 0:
            yield f"checkpoint{epoch}{suffix}.pt"
        if every > 0 and updates % every == 0:
            yield f"checkpoint_{epoch}_{updates}{suffix}.pt"
        # a resumed run has a last one, which would be an old one
        if not cfg.no_last_checkpoints or self.start.updates is not None:
            yield f"checkpoint_last{suffix}.pt"

    def _extra(self, epochs, loss: float | None, validated: float | None) -> dict:
        task = self._trainer.task
        own = task.get_checkpoint_dict() if hasattr(task, "get_checkpoint_dict") else {}
        found = {VALID_LOSS: validated, "best": self._best, EARLY_STOPPING: self._early}
        return {
            POSITION: positions.state_of(epochs),
            "val_loss": loss,
            STARTED_FROM: self.start.started_from,
            **own,
            **{name: value for name, value in found.items() if value is not None},
        }

    def _remove_old(self) -> None:
        """Remove checkpoints of this run beyond its --keep-* options."""
        cfg, pattern = self._cfg, self._cfg.keep_interval_updates_pattern
        of_updates = self._numbered(r"checkpoint_\d+_(\d+)")
        if pattern > 0:
            of_updates = [each for each in of_updates if each[0] % pattern]
        for keep, found in (
            (cfg.keep_interval_updates, of_updates),
            (cfg.keep_last_epochs, self._numbered(r"checkpoint(\d+)")),
            (cfg.keep_best_checkpoints, self._kept_best()),
        ):
            for _, path in found[keep:] if keep > 0 else ():
                path.unlink(missing_ok=True)

    def _kept_best(self) -> list[tuple[float, Path]]:
        """The --keep-best-checkpoints files, the best first; scores may be negative."""
        metric = re.escape(self._cfg.best_checkpoint_metric)
        found = self._numbered(rf"checkpoint\.best_{metric}_(-?\d+\.?\d*)")
        return found if self._cfg.maximize_best_checkpoint_metric else found[::-1]

    def _numbered(self, pattern: str) -> list[tuple[float, Path]]:
        """Files whose names match a pattern with a number, the largest first."""
        suffix = re.escape(self._trainer.checkpoint_suffix)
        whole = re.compile(rf"{pattern}{suffix}\.pt")
        found = ((whole.fullmatch(each.name), each) for each in self._folder.iterdir())
        return sorted(
            ((float(match[1]), path) for match, path in found if match), reverse=True
        )
