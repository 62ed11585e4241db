"""train.log beside the checkpoints, and on a terminal a bar of the whole run.

fairseq writes its records where --log-format says, into the output of whoever started
it. Besides, the first worker appends them to a file of the run
(data/training_records.py), whatever --log-format, --log-file and Hydra do. fairseq's
bar is of an epoch; this one tells how long the run still takes.
"""

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from numbers import Number
from pathlib import Path
from typing import Any
from unittest import mock

from fairseq.logging import metrics, progress_bar
from fairseq.logging.progress_bar import BaseProgressBar, TqdmProgressBar, format_stat
from tqdm.contrib.logging import logging_redirect_tqdm

from ..data.training_bar import TrainingBar
from ..data.training_records import LOG, append_record, put_earlier_aside

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LOOKS = 1.0


class Run:
    """What is written and shown of one training.

    Args:
        trainer: fairseq's, of the first worker.
    """

    def __init__(self, trainer) -> None:
        self.trainer = trainer
        # once there is a terminal to show it on
        self.bar: TrainingBar | None = None
        checkpoint = trainer.cfg.checkpoint
        self._folder = None
        if not checkpoint.no_save:
            self._folder = Path(checkpoint.save_dir).absolute()
            # a script of its own may have loaded its checkpoint itself
            start = getattr(trainer, "start", None)
            if start is not None and start.updates is None:
                self._put_earlier_aside()

    def _put_earlier_aside(self) -> None:
        try:
            put_earlier_aside(self._folder)
        except OSError as error:
            logger.warning("%s: %s", self._folder / LOG, error.strerror)

    def record(self, kind: str, epoch: int, stats: Mapping[str, Any]) -> None:
        """Append to train.log; no training ends because that cannot be written."""
        if self._folder is None:
            return
        prefix = "" if kind == "train_inner" else f"{kind}_"
        values = {prefix + name: _number(value) for name, value in stats.items()}
        try:
            append_record(self._folder, kind, {"epoch": epoch} | values)
        except OSError as error:
            logger.warning(
                "%s: %s: no more records of this run are written",
                self._folder / LOG,
                error.strerror,
            )
            self._folder = None

    def updates(self, of_epoch: int) -> int | None:
        """All updates, as far as the settings tell.

        Args:
            of_epoch: updates of an epoch.
        """
        optimization = self.trainer.cfg.optimization
        epochs = optimization.max_epoch or math.inf
        least = min(optimization.max_update or math.inf, epochs * of_epoch)
        return None if least == math.inf else int(least)


_current: Run | None = None


@contextmanager
def of_run(trainer) -> Iterator[None]:
    """What is logged meanwhile is of this training."""
    global _current
    if not trainer.is_data_parallel_master:
        yield
        return
    if not hasattr(trainer, "run_log"):
        trainer.run_log = Run(trainer)
    before, _current = _current, trainer.run_log
    try:
        yield
    finally:
        _current = before


def record_and_show(make, iterator, *arguments, prefix=None, **keywords):
    """Around logging/progress_bar.py, progress_bar, which makes one of its classes.

    Of a validation, which has a prefix, fairseq's own bar is shown below the run's.
    """
    run = _current
    if run is None:
        return make(iterator, *arguments, prefix=prefix, **keywords)
    kind = partial(RunBar, run) if prefix is None else TqdmProgressBar
    with mock.patch.object(progress_bar, "TqdmProgressBar", kind):
        bar = make(iterator, *arguments, prefix=prefix, **keywords)
    return Recorded(run, bar, keywords.get("epoch"))


class Recorded(BaseProgressBar):
    """A bar of fairseq, or none, with records in train.log."""

    def __init__(self, run: Run, bar: BaseProgressBar, epoch: int | None) -> None:
        self._run, self._bar, self._epoch = run, bar, epoch

    def __iter__(self) -> Iterator[Any]:
        return iter(self._bar)

    def __len__(self) -> int:
        return len(self._bar)

    def log(self, stats, tag=None, step=None) -> None:
        """Within an epoch."""
        self._run.record(tag, self._epoch, stats)
        self._bar.log(stats, tag=tag, step=step)

    def print(self, stats, tag=None, step=None) -> None:
        """At the end of an epoch, or of a validation."""
        self._run.record(tag, self._epoch, stats)
        self._bar.print(stats, tag=tag, step=step)

    def update_config(self, config) -> None:
        """For loggers that keep it."""
        self._bar.update_config(config)


class RunBar(TqdmProgressBar):
    """Updates of the whole run, with its loss, tokens a second and time left."""

    def __init__(self, run: Run, iterable, epoch=None, prefix=None) -> None:
        BaseProgressBar.__init__(self, iterable, epoch, prefix)
        self._run = run

    def __iter__(self) -> Iterator[Any]:
        trainer = self._run.trainer
        if self._run.bar is None:
            updates = self._run.updates(len(self.iterable))
            self._run.bar = TrainingBar(updates, trainer.get_num_updates())
        bar, looked = self._run.bar, 0.0
        bar.describe(self.prefix)
        try:
            # fairseq's lines would else begin in the middle of the bar's
            with logging_redirect_tqdm():
                for each in self.iterable:
                    yield each
                    if time.monotonic() - looked > SECONDS_BETWEEN_LOOKS:
                        looked = time.monotonic()
                        self.log(metrics.get_smoothed_values("train_inner"))
                    bar.move_to(trainer.get_num_updates())
        finally:
            bar.clear()

    def log(self, stats, tag=None, step=None) -> None:
        """Show the loss and the tokens a second, where there are any."""
        if self._run.bar is not None:
            self._run.bar.show(stats)


def _number(value: Any) -> Any:
    """As it is; what is not, as fairseq writes it."""
    if isinstance(value, Number):
        return value
    text = format_stat(value)
    try:
        return float(text)
    except (TypeError, ValueError):
        return text
