"""How a figure is read from a run: each metric is a function of what the run left.

A metric is a function (RunResults) -> float or None, registered here by name or named
in a table as MODULE:FUNCTION. None stands for "not there (yet)"; NotMeasured is raised
for a figure that the run could not get.
"""

import math
import re
from functools import cached_property
from statistics import median
from typing import Any

from ...analysis.training_log import parse_training_log, saved_updates
from ...training.config import get
from ..registry import Registry
from .run_folder import RunFolder

METRICS = Registry("metric")
GIBIBYTE = 1024**3


class NotMeasured(Exception):
    """A figure that will not come; the message says why, as "out of memory: ..."."""


class NotAskedFor(NotMeasured):
    """A figure that the preset leaves out."""


class RunResults:
    """What a run left in its folder, read once."""

    def __init__(self, folder: RunFolder, row: str | None = None) -> None:
        self.folder, self.row = folder, row

    def of_row(self, row: str) -> "RunResults":
        """The same for a row of a table, where rows share a run."""
        return RunResults(self.folder, row)

    @cached_property
    def status(self) -> dict[str, Any]:
        return self.folder.status()

    @property
    def place(self) -> str:
        """Where the run is, for messages."""
        return str(self.folder.path)

    @property
    def is_finished(self) -> bool:
        """``RunFolder.is_finished``."""
        return self.folder.is_finished()

    @cached_property
    def problem(self) -> str | None:
        """Why its figures are not reported: ``RunFolder.other_weights``."""
        return self.folder.other_weights()

    @property
    def log_path(self) -> str:
        """Where the training's output is."""
        return str(self.folder.log)

    def figure(self, metric: str, row: str | None) -> float | None:
        """``read_metric`` for a row of a table."""
        return read_metric(metric, self if row is None else self.of_row(row))

    @cached_property
    def log(self) -> str:
        """The training's output, all attempts of it."""
        path = self.folder.path / "train.log"
        if not path.exists():
            return ""
        return path.read_text(encoding="utf-8", errors="replace")

    @cached_property
    def records(self) -> dict[str, list[dict]]:
        """The log's records by kind; see ``analysis.training_log``."""
        return parse_training_log(self.log)

    @property
    def set_by_hand(self) -> dict[str, Any]:
        """Values that a command changed, by --set and --data."""
        return get(self.folder.description(), "origin.further_overrides") or {}

    @cached_property
    def selection(self) -> tuple[str, int]:
        """The metric that checkpoint_best.pt is chosen by, and 1 if more is better."""
        configuration = self.folder.configuration()
        name = get(configuration, "checkpoint.best_checkpoint_metric") or "loss"
        maximize = get(configuration, "checkpoint.maximize_best_checkpoint_metric")
        return name, 1 if maximize else -1

    @property
    def best(self) -> dict | None:
        """The validation record of checkpoint_best.pt; of equal ones, the last.

        Of a validation after which nothing is saved, or that is not a number, there is
        no checkpoint.

        Raises:
            NotMeasured: no validation is a number.
        """
        name, sign = self.selection
        saved = saved_updates(self.log)
        scores = [
            (sign * float(record[f"valid_{name}"]), number)
            for number, record in enumerate(self.records["valid"])
            if f"valid_{name}" in record
            and (not saved or int(record["valid_num_updates"]) in saved)
        ]
        numbers = [each for each in scores if not math.isnan(each[0])]
        if scores and not numbers:
            raise NotMeasured(f"valid_{name} is nan in every validation")
        return self.records["valid"][max(numbers)[1]] if numbers else None

    def at_best(self, split: str, name: str) -> float | None:
        """A metric of a split at the update of checkpoint_best.pt."""
        if self.best is None:
            return None
        update = self.best["valid_num_updates"]
        for record in self.records.get(split, ()):
            if record[f"{split}_num_updates"] == update:
                value = record.get(f"{split}_{name}")
                return None if value is None else float(value)
        return None


def read_metric(name: str, results: RunResults) -> float | None:
    """The metric ``name`` of a run.

    Raises:
        NotMeasured: the run is over and has no figure.
    """
    return METRICS.find(name)(results)


@METRICS.register("valid_ppl")
def valid_perplexity(results: RunResults) -> float | None:
    """Perplexity on valid at the best validation."""
    return None if results.best is None else float(results.best["valid_ppl"])


@METRICS.register("test_ppl")
def test_perplexity(results: RunResults) -> float | None:
    """Perplexity on test, by fairseq's validation, of the best checkpoint on valid."""
    return results.at_best("test", "ppl")


@METRICS.register("valid_loss")
def valid_loss(results: RunResults) -> float | None:
    """The criterion's loss on valid, in bits, of the best checkpoint on valid."""
    return results.at_best("valid", "loss")


@METRICS.register("test_loss")
def test_loss(results: RunResults) -> float | None:
    """The criterion's loss on test, in bits, of the best checkpoint on valid."""
    return results.at_best("test", "loss")


@METRICS.register("selection")
def selection(results: RunResults) -> float | None:
    """What checkpoint_best.pt is chosen by, on valid; of a sweep, the best value."""
    return results.at_best("valid", results.selection[0])


@METRICS.register("accuracy")
def accuracy(results: RunResults) -> float | None:
    """Percent of valid, by ``data.label_metrics``; so are those below."""
    return results.at_best("valid", "accuracy")


@METRICS.register("test_accuracy")
def test_accuracy(results: RunResults) -> float | None:
    """Percent of test, of the best checkpoint on valid."""
    return results.at_best("test", "accuracy")


@METRICS.register("updates_to_99")
def updates_to_99(results: RunResults) -> float | None:
    """Updates up to the first validation with 99 % of its predictions right."""
    for record in results.records["valid"]:
        if float(record.get("valid_accuracy", 0)) >= 99:
            return float(record["valid_num_updates"])
    if results.folder.is_finished() and results.records["valid"]:
        raise NotMeasured("no validation has 99 % of its predictions right")
    return None


@METRICS.register("mismatched_accuracy")
def mismatched_accuracy(results: RunResults) -> float | None:
    """Percent of valid1: MNLI's mismatched development set."""
    return results.at_best("valid1", "accuracy")


@METRICS.register("f1")
def f1(results: RunResults) -> float | None:
    """F1 of the positive class on valid."""
    return results.at_best("valid", "f1")


@METRICS.register("macro_f1")
def macro_f1(results: RunResults) -> float | None:
    """F1 on valid, averaged over more than two classes."""
    return results.at_best("valid", "macro_f1")


@METRICS.register("mcc")
def matthews_correlation(results: RunResults) -> float | None:
    """Matthews correlation coefficient on valid, times 100."""
    return results.at_best("valid", "mcc")


@METRICS.register("correlation")
def correlation(results: RunResults) -> float | None:
    """Mean of Pearson's and Spearman's coefficients on valid, times 100."""
    return results.at_best("valid", "correlation")


@METRICS.register("params_m")
def parameters(results: RunResults) -> float | None:
    """Millions of parameters, trained or not."""
    found = re.search(r"num\. shared model params: ([\d,]+)", results.log)
    return int(found[1].replace(",", "")) / 1e6 if found else None


@METRICS.register("tokens_per_second")
def tokens_per_second(results: RunResults) -> float | None:
    """Median over the log's intervals but the first, which has the start in it."""
    records = results.records["train_inner"]
    speeds = [float(each["wps"]) for each in records[1:] if float(each["wps"]) > 0]
    return median(speeds) if speeds else None


@METRICS.register("peak_memory_gib")
def peak_memory(results: RunResults) -> float | None:
    """On a GPU what torch allocated at most, on the CPU the process's resident set."""
    # each attempt tells what its GPU has: a run may have been resumed on another one
    _, *attempts = re.split(r"total memory = ([\d.]+) GB", results.log)
    peaks = [
        float(total) - float(each["gb_free"])
        for total, log in zip(attempts[::2], attempts[1::2], strict=True)
        for each in parse_training_log(log)["train_inner"]
        if "gb_free" in each
    ]
    if peaks:
        return max(peaks)
    sizes = [each.get("peak_rss_bytes") for each in _training_attempts(results)]
    return max(filter(None, sizes), default=0) / GIBIBYTE or None


@METRICS.register("wall_seconds")
def wall_seconds(results: RunResults) -> float | None:
    """Of all attempts at the training, the interrupted ones included.

    Raises:
        NotMeasured: one has no end, as its runner was killed: a sum of the others would
            be less than the training took.
    """
    attempts = _training_attempts(results)
    if any("ended" not in each for each in attempts):
        raise NotMeasured("the end of an attempt is not known: its runner was killed")
    times = [each["ended"] - each["started"] for each in attempts]
    return sum(times) if times else None


@METRICS.register("wall_minutes")
def wall_minutes(results: RunResults) -> float | None:
    """``wall_seconds`` in minutes."""
    seconds = wall_seconds(results)
    return None if seconds is None else seconds / 60


@METRICS.register("updates")
def updates(results: RunResults) -> float | None:
    """Updates so far, as far as the log tells."""
    found = [int(each["num_updates"]) for each in results.records["train_inner"]]
    found += [int(each["valid_num_updates"]) for each in results.records["valid"]]
    return float(max(found)) if found else None


@METRICS.register("gradient_rsd")
def gradient_deviation(results: RunResults) -> float | None:
    """Relative standard deviation of the gradient's norm over the updates.

    Raises:
        NotMeasured: not all updates were recorded, as where a run was resumed without
            the file: it varies most in the first ones. Or the file is damaged.
    """
    from ...analysis.gradient_statistics import read_gradient_series, summarise

    path = results.folder.path / "gradient_statistics.jsonl"
    if not path.exists():
        return None
    try:
        found = summarise(read_gradient_series(path))
    except ValueError as error:
        raise NotMeasured(str(error)) from error
    last = max(found["last_update"], int(updates(results) or 0))
    recorded = found["updates"]
    if recorded < last:
        raise NotMeasured(f"{path.name} has {recorded} of {last} updates")
    return found["all_parameters"]


def _training_attempts(results: RunResults) -> list[dict]:
    return [each for each in results.status["attempts"] if each["step"] == "train"]
