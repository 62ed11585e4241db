"""How a figure is read from what a run left in its folder.

A table names a metric. It may be SPLIT_NAME of the log's validation records at the
update of checkpoint_best.pt, as valid_ppl; or one of ``METRICS`` or of Table 7. It may
be MODULE:FUNCTION, a function of ``RunResults`` that returns a number or None.
"""

import importlib
import json
import math
import re
from collections.abc import Callable
from functools import cached_property
from statistics import median
from typing import Any

from ..analysis.gradient_statistics import read_gradient_series, summarise
from ..analysis.training_log import parse_training_log, saved_updates
from ..training.config import get
from .jobs import SPEED
from .runs import RunFolder

GIBIBYTE = 1024**3
# of Table 7: infer_2K is steps a second at 2,048 tokens
SPEED_METRIC = re.compile(r"(infer|train)_(\d+)K(_memory|_over_vanilla|_over_sdpa)?")
PHASES = {"infer": "inference", "train": "training"}
OVER = {"_over_vanilla": "Transformer", "_over_sdpa": "Transformer, SDPA"}


class NotMeasured(Exception):
    """A figure that will not come; the message says why, as "out of memory: ..."."""


class NotAskedFor(NotMeasured):
    """A figure that the preset leaves out."""


class RunResults:
    """What a run left in its folder, read once."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @cached_property
    def records(self) -> dict[str, list[dict[str, Any]]]:
        """The log's records by kind; see ``analysis.training_log``."""
        return parse_training_log(self.folder.log)

    def within_epochs(self, name: str) -> list[float]:
        """A value of all records within epochs that have it."""
        records = self.records["train_inner"]
        return [float(each[name]) for each in records if name in each]

    @property
    def selected_by(self) -> tuple[str, bool]:
        """What checkpoint_best.pt is chosen by, and whether more of it is better."""
        settings = self.folder.configuration
        name = get(settings, "checkpoint.best_checkpoint_metric") or "loss"
        return name, bool(get(settings, "checkpoint.maximize_best_checkpoint_metric"))

    @cached_property
    def best(self) -> dict[str, Any] | None:
        """The validation record of checkpoint_best.pt; of equal ones, the last.

        Of a validation after which nothing is saved, or that is not a number, there is
        no checkpoint; NotMeasured where none is a number.
        """
        (name, maximise), saved = self.selected_by, saved_updates(self.folder.log)
        scores = [
            ((1 if maximise else -1) * float(record[f"valid_{name}"]), number)
            for number, record in enumerate(self.records["valid"])
            if f"valid_{name}" in record
            and (not saved or int(record["valid_num_updates"]) in saved)
        ]
        numbers = [each for each in scores if not math.isnan(each[0])]
        if scores and not numbers:
            raise NotMeasured(f"valid_{name} is nan in every validation")
        return self.records["valid"][max(numbers)[1]] if numbers else None

    def at_best(self, split: str, name: str) -> float | None:
        """A value of a split's record at the update of checkpoint_best.pt."""
        update = self.best and self.best["valid_num_updates"]
        for record in self.records.get(split, ()):
            if record[f"{split}_num_updates"] == update:
                value = record.get(f"{split}_{name}")
                return None if value is None else float(value)
        return None


Reader = Callable[[RunResults, str], float | None]


def reader_of(metric: str) -> Reader:
    """What reads a metric of a run, and a row: None where it is not there (yet).

    It raises NotMeasured where the run is over and has no figure. ValueError where
    there is no such metric.
    """
    if metric in METRICS:
        return lambda results, row: METRICS[metric](results)
    if found := SPEED_METRIC.fullmatch(metric):
        return lambda results, row: _speed(results, row, *found.groups())
    if ":" in metric:
        return _function(metric)
    split, _, name = metric.partition("_")
    if not re.fullmatch(r"valid\d*|test", split) or not name:
        allowed = f"valid_NAME, test_NAME, {', '.join(METRICS)}, MODULE:FUNCTION"
        raise ValueError(f"metric {metric!r} is not known; allowed: {allowed}")
    return lambda results, row: results.at_best(split, name)


def _function(metric: str) -> Reader:
    module, _, name = metric.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"metric {metric!r}: {error}") from error

    def read(results: RunResults, row: str) -> float | None:
        try:
            value = function(results)
            return None if value is None else float(value)
        except Exception as error:  # of somebody's code: the other figures stay
            raise NotMeasured(f"{metric}: {error!r}") from error

    return read


def _updates_to_99(run: RunResults) -> float | None:
    """Updates up to the first validation with 99 % of its predictions right."""
    for record in run.records["valid"]:
        if float(record.get("valid_accuracy", 0)) >= 99:
            return float(record["valid_num_updates"])
    if run.records["valid"]:
        raise NotMeasured("no validation has 99 % of its predictions right")
    return None


def _parameters(run: RunResults) -> float | None:
    """Millions of parameters, trained or not."""
    found = re.search(r"num\. shared model params: ([\d,]+)", run.folder.log)
    return int(found[1].replace(",", "")) / 1e6 if found else None


def _speeds(run: RunResults) -> list[float]:
    """Tokens a second of the log's intervals but the first, which has the start."""
    return [speed for speed in run.within_epochs("wps")[1:] if speed > 0]


def _wall_seconds(run: RunResults) -> float | None:
    """Of all attempts at the training, the interrupted ones included."""
    times = [each.get("seconds") for each in run.folder.attempts]
    if None in times:  # a sum of the others would be less than the training took
        raise NotMeasured("the end of an attempt is not known: it was killed")
    return sum(times) if times else None


def _updates(run: RunResults) -> float | None:
    """Updates so far, by the log."""
    validations = [float(e["valid_num_updates"]) for e in run.records["valid"]]
    return max([*run.within_epochs("num_updates"), *validations], default=None)


def _gradient_deviation(run: RunResults) -> float | None:
    """Relative standard deviation of the gradient's norm over the updates.

    NotMeasured where not all were recorded, as where a run was resumed without the
    file: it varies most in the first ones.
    """
    path = run.folder.path / "gradient_statistics.jsonl"
    if not path.exists():
        return None
    try:
        found = summarise(read_gradient_series(path))
    except ValueError as error:
        raise NotMeasured(str(error)) from error
    last = max(found["last_update"], int(_updates(run) or 0))
    if found["updates"] < last:
        raise NotMeasured(f"{path.name} has {found['updates']} of {last} updates")
    return found["all_parameters"]


METRICS: dict[str, Callable[[RunResults], float | None]] = {
    # what checkpoint_best.pt is chosen by
    "selection": lambda run: run.at_best("valid", run.selected_by[0]),
    "updates_to_99": _updates_to_99,
    "params_m": _parameters,
    "tokens_per_second": lambda run: median(_speeds(run)) if _speeds(run) else None,
    # at most: what torch held on a GPU, what the process had on the CPU
    "peak_memory_gib": lambda run: max(run.within_epochs("gb_peak"), default=None),
    "wall_seconds": _wall_seconds,
    "wall_minutes": lambda run: (found := _wall_seconds(run)) and found / 60,
    "updates": _updates,
    "gradient_rsd": _gradient_deviation,
}


def _speed(
    results: RunResults, row: str, short: str, thousands: str, what: str | None
) -> float | None:
    """Steps a second of Table 7, over another row's, or GiB.

    NotMeasured where it ran out of memory or was left out.
    """
    path = results.folder.path / SPEED
    if not path.exists():
        return None
    place = PHASES[short], 1024 * int(thousands)
    of_place = {
        each["provider"]: each
        for each in json.loads(path.read_text(encoding="utf-8"))["measurements"]
        if (each["phase"], each["length"]) == place
    }
    if not of_place:
        raise NotAskedFor(f"{place[0]} of {place[1]} tokens")
    names = [row, OVER[what]] if what in OVER else [row]
    found = [of_place[name] for name in names if name in of_place]
    for each in found:
        if "skipped" in each:
            raise NotMeasured(each["skipped"])
    if len(found) < len(names):
        return None
    if what == "_memory":
        return found[0]["peak_bytes"] / GIBIBYTE
    ours, *other = (median(each["seconds"]) for each in found)
    return other[0] / ours if other else 1 / ours
