"""What a report keeps of a run, so that a later report can add it to runs of its own.

Machines and clusters forget their runs; a report's JSON, which is committed, has of
each its settings, data, commits and versions. ``report --add`` reads the runs whose
folders there are, and takes others from the report that is there already, or from
another table's, which has the same training: finished ones, and those that failed, as a
run that diverges does, without which a mean would be that of the seeds that went well.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...data.typed_mappings import MAPPING, TEXT, Kind, check_values, optional
from ...training.config import flattened, get
from ..errors import ReproduceError
from ..runs.metrics import NotAskedFor, NotMeasured, RunResults, read_metric

Record = dict[str, Any]
DATA_FOLDER = "data-bin"  # of the presets
ENDED = ("finished", "failed")
# of a configuration, where a machine has its files; data have a fingerprint
PLACES = ("common.user_dir", "task.data")
RESOURCES = ("params_m", "tokens_per_second", "peak_memory_gib", "wall_seconds")
_KINDS = {
    "identity": MAPPING,
    "problem": optional(TEXT),
    "data": optional(TEXT),
    "set_by_hand": MAPPING,
    "changed_model": MAPPING,
    "selection": Kind(
        "a mapping of metric, more_is_better, value",
        lambda value: (
            MAPPING.fits(value) and {"metric", "more_is_better", "value"} <= {*value}
        ),
    ),
    "curve": Kind(
        "a mapping of updates and figures",
        lambda value: MAPPING.fits(value) and "updates" in value,
    ),
}


def record_of(results: RunResults, curve: str) -> Record:
    """All of a run that a report states, as plain data, but the figures of its cells.

    Args:
        results: of the run.
        curve: what of its validation records is kept, as valid_ppl.
    """
    folder = results.folder
    attempts, start = results.status["attempts"], folder.start()
    description = folder.description()

    def all_of(key: str) -> list[str]:
        return sorted({each[key] for each in attempts if key in each})

    return {
        "state": results.status["state"],
        "problem": results.problem if results.is_finished else None,
        **{name: _figure(name, results) for name in (*RESOURCES, "updates")},
        "weights": start and start.weights,
        "checkpoint": start and start.checkpoint,
        "commits": all_of("commit"),
        "devices": all_of("device"),
        "machines": all_of("machine"),
        "versions": attempts[-1].get("versions", {}) if attempts else {},
        "data": _data_of(description),
        "set_by_hand": results.set_by_hand,
        "changed_model": get(description, "origin.changed_model") or {},
        "selection": _selection(results),
        "curve": _curve(results, curve),
        "identity": _identity(results),
    }


class RecordedRun:
    """A run of an earlier report that has ended; reads as ``RunResults`` does.

    Args:
        report: that has it.
        name, seed: of the run.
        other_table: whether the report is another table's, whose rows have other names.
    """

    def __init__(
        self, report: dict[str, Any], name: str, seed: str, other_table: bool = False
    ) -> None:
        self._report, self._name, self._seed = report, name, seed
        self._other_table = other_table
        self.record: Record = report["runs"][name][seed]
        self.status = {"state": self.record["state"]}
        self.is_finished = self.record["state"] == "finished"
        self.problem: str | None = self.record["problem"]
        self.place = f"{name}/seed{seed} of {report['table']}.json"
        self.log_path = "not there any more"

    @property
    def set_by_hand(self) -> dict[str, Any]:
        """As ``RunResults.set_by_hand``."""
        return self.record["set_by_hand"]

    @property
    def selection(self) -> tuple[str, int]:
        """As ``RunResults.selection``."""
        found = self.record["selection"]
        return found["metric"], 1 if found["more_is_better"] else -1

    def figure(self, metric: str, row: str | None) -> float | None:
        """As ``RunResults.figure``; None if the table's earlier report has none.

        Raises:
            NotAskedFor: another table's report has none, as it has other columns.
        """
        if metric == "selection":
            value = self.record["selection"]["value"]
            if value is None:
                raise NotMeasured("no validation is a number")
            return value
        for cell in self._cells(row):
            if cell["run"] == self._name and cell["metric"] == metric:
                if self._seed in cell["seeds"]:
                    return cell["seeds"][self._seed]
                if cell["not_measured"]:
                    raise NotMeasured(cell["not_measured"])
                if cell["errors"]:
                    return None
                raise NotAskedFor
        if self._other_table:
            raise NotAskedFor
        return None

    def _cells(self, row: str | None) -> list[dict[str, Any]]:
        rows = self._report["rows"]
        return _cells_of(rows.values() if self._other_table else [rows.get(row, {})])


def _cells_of(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows' cells and those of their sweeps."""
    return [
        each
        for columns in rows
        for cell in columns.values()
        for each in (cell, *cell.get("sweep", ()))
    ]


def read_all(report: dict[str, Any]) -> None:
    """Read what ``RecordedRun`` reads of every run and figure of a report.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: something is not as it writes.
    """
    for seeds in report["runs"].values():
        for seed, record in seeds.items():
            int(seed), record["state"]
    for cell in _cells_of(report["rows"].values()):
        cell["metric"], cell["run"], cell["not_measured"], cell["errors"]
        for seed, figure in cell["seeds"].items():
            int(seed), math.isfinite(figure)


def recorded_runs(report: dict[str, Any], path: Path) -> dict[str, dict[int, Any]]:
    """The runs of a report that have ended: name -> seed -> ``RecordedRun``.

    Args:
        report: what the file has.
        path: of the file, for messages.

    Raises:
        ReproduceError: a run lacks something, as in a report that was written before
            there was ``--add``.
    """
    found: dict[str, dict[int, Any]] = {}
    for name, seeds in report["runs"].items():
        for seed, record in seeds.items():
            if record["state"] not in ENDED:
                continue
            try:
                check_values(f"{path}: {name}/seed{seed}", record, _KINDS, _KINDS)
            except ValueError as error:
                raise ReproduceError(
                    f"{error}, as in reports written before runs could be added to "
                    "them; allowed: report without --add"
                ) from error
            found.setdefault(name, {})[int(seed)] = RecordedRun(report, name, seed)
    return found


def trainings_of(
    reports: Iterable[dict[str, Any]], curve: str
) -> dict[str, dict[int, list[RecordedRun]]]:
    """Trainings in other tables' reports that have ended: name -> seed -> of each.

    A measurement that rows share has other figures for other rows, a report from
    before there was ``--add`` cannot be compared, and one with other learning curves
    than ``curve`` cannot be drawn beside: none is taken.
    """
    found: dict[str, dict[int, list[RecordedRun]]] = {}
    for report in reports:
        if report["curve"] != curve:
            continue
        for name, seeds in report["runs"].items():
            if all(each.get("updates") is None for each in seeds.values()):
                continue  # measurements
            for seed, record in seeds.items():
                if record["state"] not in ENDED:
                    continue
                try:
                    check_values(name, record, _KINDS, _KINDS)
                except ValueError:
                    continue
                run = RecordedRun(report, name, seed, other_table=True)
                found.setdefault(name, {}).setdefault(int(seed), []).append(run)
    return found


def without_common(
    records: dict[str, dict[int, Record]],
) -> tuple[dict[str, Any], dict[str, dict[int, Record]]]:
    """What all runs' identities have in common, once, and the records without it."""
    all_of = [each["identity"] for seeds in records.values() for each in seeds.values()]
    first = all_of[0] if all_of else {}
    common = {
        key: value
        for key, value in first.items()
        if all(key in each and each[key] == value for each in all_of)
    }
    return common, {
        name: {
            seed: each | {"identity": _beside(each, common)}
            for seed, each in seeds.items()
        }
        for name, seeds in records.items()
    }


def with_common(report: dict[str, Any]) -> dict[str, Any]:
    """A report as read, with whole identities in its runs."""
    common = report.get("common_identity", {})
    runs = {
        name: {
            seed: each | {"identity": common | each["identity"]}
            if MAPPING.fits(each.get("identity"))
            else each
            for seed, each in seeds.items()
        }
        for name, seeds in report["runs"].items()
    }
    return report | {"runs": runs}


def _beside(record: Record, common: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in record["identity"].items() if k not in common}


def _figure(name: str, results: RunResults) -> float | None:
    try:
        return read_metric(name, results)
    except NotMeasured:
        return None


def _selection(results: RunResults) -> dict[str, Any]:
    name, sign = results.selection
    value = _figure("selection", results)
    finite = value is not None and math.isfinite(value)
    more = sign == 1
    return {"metric": name, "more_is_better": more, "value": value if finite else None}


def _identity(results: RunResults) -> dict[str, Any]:
    """Everything that a run's figures depend on, by key; not where files lie."""
    folder, attempts = results.folder, results.status["attempts"]
    start = folder.start()
    found = flattened(folder.configuration())
    for place in PLACES:
        found.pop(place, None)
    found["data"] = folder.description()["data_fingerprint"]
    found["weights"] = start and start.weights
    if attempts:
        commits = sorted({each.get("commit", "unknown") for each in attempts})
        found["commit"] = ", ".join(commits)
        versions = attempts[-1].get("versions", {})
        found |= {f"version of {name}": each for name, each in versions.items()}
    return found


def _data_of(description: dict[str, Any]) -> str | None:
    """None for a job without data, as a benchmark."""
    fingerprint = description["data_fingerprint"]
    if not fingerprint:
        return None
    return f"{_name_of(Path(description['data']))} ({fingerprint})"


def _name_of(folder: Path) -> str:
    """The place in ``data-bin``, as recall_256/4; elsewhere the folder's own name."""
    parts = folder.parts
    if DATA_FOLDER not in parts[:-1]:
        return folder.name
    last = max(place for place, part in enumerate(parts[:-1]) if part == DATA_FOLDER)
    return "/".join(parts[last + 1 :])


def _curve(results: RunResults, key: str) -> dict[str, list[float]]:
    """What the validation records have under ``key``, by updates."""
    records = [each for each in results.records["valid"] if key in each]
    return {
        "updates": [int(each["valid_num_updates"]) for each in records],
        key: [float(each[key]) for each in records],
    }
