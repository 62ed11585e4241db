"""train.log in the folder of the checkpoints, and a progress bar on a terminal.

The first worker appends fairseq's records to train.log (data/training_records.py), with
any --log-format and --log-file. The bar is of the whole run; fairseq's is of an epoch.
"""

import logging
import math
import os
import sys
from collections.abc import Iterator, Mapping
from numbers import Number
from pathlib import Path
from typing import Any

from fairseq.distributed.utils import is_master
from fairseq.logging import progress_bar
from fairseq.logging.progress_bar import BaseProgressBar, format_stat
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..data.training_records import LOG, append_record, put_earlier_aside

logger = logging.getLogger(__name__)

# arguments of fairseq's progress_bar with the names of "common"; 0.12.2 has no aim
LOGGERS = ("aim_repo", "aim_run_hash", "tensorboard_logdir", "wandb_project")
LOGGERS += ("azureml_logging",)
BAR = "{desc} |{bar}| {n_fmt}/{total_fmt} updates{postfix}, {remaining} left"
SHOWN = {"loss": "loss {:.3f}", "wps": "{:,.0f} tokens/s"}
# for a terminal of unknown size, for which tqdm would show nothing
COLUMNS, LINES = 80, 24


class TrainingBar(tqdm):
    """A progress bar over the updates of a training, ``initial`` of them done."""

    def __init__(self, total: int | None, initial: int = 0) -> None:
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        size = {"dynamic_ncols": True} if columns else {"ncols": COLUMNS}
        size |= {} if columns else {"nrows": LINES}
        options = {"total": total, "initial": initial, "bar_format": BAR}
        super().__init__(**options, leave=False, **size)

    def show(self, record: Mapping[str, Any]) -> None:
        """Show the loss and the tokens per second of a record, if it has them."""
        known = {name: text for name, text in SHOWN.items() if record.get(name)}
        if known:
            found = (text.format(float(record[name])) for name, text in known.items())
            self.set_postfix_str(", ".join(found))


class RunLog:
    """The log and the progress bar of one training.

    Args:
        trainer: fairseq's.
        begins: whether the run starts at its first update. An existing train.log is
            then that of another run.
    """

    def __init__(self, trainer, begins: bool) -> None:
        self.trainer, self._cfg = trainer, trainer.cfg
        # only if there is a terminal to show it on
        self.bar: TrainingBar | None = None
        self._folder = None
        if trainer.is_data_parallel_master and not self._cfg.checkpoint.no_save:
            self._folder = Path(self._cfg.checkpoint.save_dir).absolute()
        if begins and self._folder:
            try:
                put_earlier_aside(self._folder)
            except OSError as error:
                logger.warning("%s: %s", self._folder / LOG, error.strerror)

    def progress(self, iterator, epoch: int, subset: str | None = None):
        """fairseq's bar over batches, or none, with records in train.log.

        The batches are those of an epoch, or of a validation on ``subset``.
        """
        common, first = self._cfg.common, is_master(self._cfg.distributed_training)
        folder = self._cfg.checkpoint.save_dir
        form = common.log_format or ("simple" if common.no_progress_bar else "tqdm")
        known = [name for name in LOGGERS if name in common]
        options = {name: common[name] if first else None for name in known}
        if "aim_repo" in options:
            options["aim_param_checkpoint_dir"] = folder
        options["log_interval"] = common.log_interval
        if subset is None:
            options["log_file"] = common.log_file
            if form == "tqdm" and first and sys.stderr.isatty():
                iterator, form = _RunBar(self, iterator, epoch), "simple"
                options["log_interval"] = None  # the bar shows the progress of an epoch
        bar = progress_bar.progress_bar(
            iterator,
            log_format=form,
            epoch=epoch,
            prefix=subset and f"valid on '{subset}' subset",
            wandb_run_name=os.environ.get("WANDB_NAME", os.path.basename(folder)),
            **options,
        )
        return _Recorded(self, bar, epoch)

    def record(self, kind: str, epoch: int, stats: Mapping[str, Any]) -> None:
        """Append to train.log; a training continues if this fails."""
        if self._folder is None:
            return
        prefix = "" if kind == "train_inner" else f"{kind}_"
        values = {prefix + name: _number(value) for name, value in stats.items()}
        try:
            append_record(self._folder, kind, {"epoch": epoch} | values)
        except OSError as error:
            path, self._folder = self._folder / LOG, None
            why = f"{error.strerror}: no more records of this run are written"
            logger.warning("%s: %s", path, why)


class _Recorded(BaseProgressBar):
    """A bar of fairseq, or none, with records in train.log."""

    def __init__(self, run: RunLog, bar: BaseProgressBar, epoch: int) -> None:
        self._run, self._bar, self._epoch = run, bar, epoch
        self.update_config = bar.update_config

    def __iter__(self) -> Iterator[Any]:
        return iter(self._bar)

    def log(self, stats, tag=None, step=None) -> None:
        """Within an epoch."""
        self._run.record(tag, self._epoch, stats)
        if self._run.bar is not None:
            self._run.bar.show(stats)
        self._bar.log(stats, tag=tag, step=step)

    def print(self, stats, tag=None, step=None) -> None:
        """At the end of an epoch or a validation."""
        self._run.record(tag, self._epoch, stats)
        self._bar.print(stats, tag=tag, step=step)


class _RunBar:
    """Updates of the whole run, with its loss, tokens per second and time left."""

    def __init__(self, run: RunLog, batches, epoch: int) -> None:
        self._run, self._batches, self._epoch = run, batches, epoch
        self.n = getattr(batches, "n", 0)  # fairseq's bars ask for it

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        run, done = self._run, self._run.trainer.get_num_updates
        if run.bar is None:
            limits = run.trainer.cfg.optimization
            most = (limits.max_epoch or math.inf) * len(self._batches)
            most = min(limits.max_update or math.inf, most)
            run.bar = TrainingBar(None if most == math.inf else int(most), done())
        run.bar.set_description_str(f"epoch {self._epoch:03d}", refresh=False)
        try:
            # otherwise fairseq's lines would start in the middle of the bar's line
            with logging_redirect_tqdm():
                for each in self._batches:
                    yield each
                    run.bar.update(done() - run.bar.n)
        finally:
            run.bar.clear()


def _number(value: Any) -> Any:
    """A number unchanged; other values as fairseq writes them."""
    if isinstance(value, Number):
        return value
    try:
        return float(format_stat(value))
    except (TypeError, ValueError):
        return format_stat(value)
