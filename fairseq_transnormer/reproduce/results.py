"""Results as rows: one run and one figure of a table is a line of runs.csv.

runs.csv            a line a figure: where it stands, its value, what its run was
configurations.csv  the settings of each configuration, by their fingerprint
curves.csv          a line a validation

Lines of another machine are added by concatenating its files to these.
"""

import functools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
from pandas import DataFrame

from ..data.whole_files import write_text
from .finetune import TASK
from .jobs import job_of
from .metrics import NotAskedFor, NotMeasured, RunResults, reader_of
from .plan import Conditions, other_values, task_of
from .runs import FACTS, FINISHED, UNREADABLE, WITHOUT_RESULT, RunFolder
from .schema import Cell, Table, plain
from .settings import fingerprint_of, settings_of

RUNS, CONFIGURATIONS, CURVES = "runs.csv", "configurations.csv", "curves.csv"
UNREAD = "unreadable"  # how the note of a run begins that has no figure for a row
# which figure it is; of one figure and one seed there is one line
KEY = ("preset", "table", "row", "column", "sweep", "seed")
COLUMNS = {
    **dict.fromkeys(("preset", "table", "row", "column", "sweep"), str),
    "seed": int,
    "metric": str,
    "value": float,
    "note": str,  # why there is no value: a state, or a reason
    "selected_by": str,  # as "min loss": how checkpoint_best.pt was chosen
    "selection": float,  # its value, by which a sweep's best is chosen
    **dict.fromkeys(("updates", "parameters", "tokens_per_second"), float),
    **dict.fromkeys(("peak_memory_gib", "seconds"), float),
    **dict.fromkeys(("device", "machine", "versions", "commit", "run"), str),
    **dict.fromkeys(("config", "data", "weights"), str),
}
# facts of a run that are metrics, some by another name
MEASURED = ("selection", "updates", "parameters", "tokens_per_second")
MEASURED += ("peak_memory_gib", "seconds")
METRIC_OF = {"parameters": "params_m", "seconds": "wall_seconds"}
RUN = ["preset", "run", "seed", "config", "data", "weights"]
CURVE_KEY = (*RUN, "metric", "updates")
CURVE_COLUMNS: dict[str, type] = dict.fromkeys(CURVE_KEY, str)
CURVE_COLUMNS |= {"seed": int, "updates": int, "value": float}
FILES = {RUNS: COLUMNS, CURVES: CURVE_COLUMNS}
FILES[CONFIGURATIONS] = {"config": str, "settings": str}


@dataclass
class Results:
    """What the files of a folder have."""

    runs: DataFrame  # see ``COLUMNS``
    settings: dict[str, Any]  # fingerprint -> settings of a configuration
    curves: DataFrame  # see ``CURVE_COLUMNS``

    @classmethod
    def read(cls, folder: Path) -> "Results":
        """The files of a folder; nothing where there are none.

        ValueError where one cannot be read, or has two lines of one figure and seed, or
        of one run under two seeds.
        """
        tables = {name: _read(folder / name, FILES[name]) for name in FILES}
        try:
            lines = tables[CONFIGURATIONS].itertuples(index=False)
            settings = {config: dict(json.loads(text)) for config, text in lines}
        except (TypeError, ValueError) as error:
            raise ValueError(f"{folder / CONFIGURATIONS}: {error}") from error
        curves = tables[CURVES].drop_duplicates(list(CURVE_KEY))
        found = cls(tables[RUNS].drop_duplicates(), settings, curves)
        found.check(folder / RUNS)
        return found

    def check(self, where: Path) -> None:
        """Raise ValueError where a figure would count twice."""
        with_run = self.runs[self.runs["config"] != ""]
        of_run = [*KEY[:-1], "config", "data", "weights"]
        for rows, key, what in (
            (self.runs, [*KEY], "two lines of one figure and seed"),
            (with_run, of_run, "one run under two seeds"),
        ):
            for first in rows[rows.duplicated(key)].to_dict("records"):
                shown = ", ".join(f"{name} {first[name]}" for name in ("run", *KEY))
                raise ValueError(f"{where}: {what}: {shown}; remove one of them")

    def add(self, other: "Results") -> "Results":
        """With those of ``other``, which replace lines of the same figure and seed: of
        runs that are finished, or where there was no finished one."""
        runs = pandas.concat([self.runs, other.runs], ignore_index=True)
        is_new = runs.index >= len(self.runs)
        unread = runs["note"].str.startswith(UNREAD)
        ended = runs["value"].notna() | ~(runs["note"].isin(WITHOUT_RESULT) | unread)
        order = runs.assign(_ended=ended, _new=is_new)
        order = order.sort_values(["_ended", "_new"], kind="stable")
        runs = order.drop_duplicates(list(KEY), keep="last").sort_index()
        # a curve is that of the attempt that the row is of
        of_rows = [
            each.curves.merge(runs[runs["_new"] == is_new][RUN].drop_duplicates())
            for each, is_new in ((self, False), (other, True))
        ]
        curves = pandas.concat(of_rows).drop_duplicates(list(CURVE_KEY), keep="last")
        runs = runs.drop(columns=["_ended", "_new"])
        return Results(runs, self.settings | other.settings, curves)

    def write(self, folder: Path) -> None:
        """Write the three files, each whole; lines of one table stand together."""
        used = sorted(set(self.runs["config"]) & set(self.settings))
        lines = [[k, json.dumps(self.settings[k], sort_keys=True)] for k in used]
        frames = {
            RUNS: self.runs.sort_values(["preset", "table"], kind="stable"),
            CONFIGURATIONS: DataFrame(lines, columns=["config", "settings"]),
            CURVES: self.curves.sort_values(list(CURVE_KEY), kind="stable"),
        }
        for name, frame in frames.items():
            write_text(folder / name, frame.to_csv(index=False, lineterminator="\n"))


def _read(path: Path, columns: dict[str, type]) -> DataFrame:
    if not path.exists():
        return _typed(DataFrame(columns=[*columns]), columns)
    try:
        found = pandas.read_csv(path, dtype=str, keep_default_na=False)
        # a header among the lines is that of a file that was concatenated
        headers = found[found.iloc[:, 0] == found.columns[0]]
        if (headers != [*found.columns]).any(axis=None):
            raise ValueError("a header among the lines has other columns")
        return _typed(found.drop(headers.index)[[*columns]], columns)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _typed(frame: DataFrame, columns: dict[str, type]) -> DataFrame:
    for name, kind in columns.items():
        if kind is not str:
            numbers = pandas.to_numeric(frame[name].replace("", math.nan))
            frame = frame.assign(**{name: numbers.astype(kind)})
    return frame


def from_runs(tables: Iterable[Table], conditions: Conditions, runs: Path) -> Results:
    """The rows of all runs of these tables; ValueError if two folders are one run."""
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}

    @functools.cache
    def read(path: Path) -> tuple[RunResults, dict[str, Any]]:
        results = RunResults(RunFolder(path))
        facts = _facts_of(results, runs, settings)
        curves.extend(_curve(results, conditions.label, facts))
        return results, facts

    tasks = conditions.preset.tasks
    # names of runs take seconds to be composed
    for table in tables if (runs / conditions.label).is_dir() else ():
        before = len(rows)
        for cell in table.cells:
            if cell.mean_of or (task := task_of(cell, conditions)) not in tasks:
                continue
            by_hand = conditions.overrides_of(task)
            if cell.job != "train":
                by_hand |= conditions.overrides_of(TASK)
            for sweep, candidate in cell.candidates().items():
                own = candidate.overrides
                if any(plain(by_hand.get(k, v)) != plain(v) for k, v in own.items()):
                    continue  # --set gave the run of this name another value
                where = {"preset": conditions.label, "table": table.name}
                where |= {"row": cell.row, "column": cell.column, "sweep": sweep}
                for path in folders_of(candidate, conditions, runs):
                    results, facts = read(path)
                    if cell.job == "train" and facts.get("conditions", task) != task:
                        continue  # of a table with other conditions
                    figure = {"metric": cell.metric, "value": None}
                    if not facts["note"]:
                        figure |= _figure(results, candidate, conditions)
                    rows.append(where | facts | figure)
        print(f"{table.name}: {len(rows) - before} figures of runs", flush=True)
    frame = DataFrame(rows, columns=list(COLUMNS))
    frame = frame[frame["note"] != NotAskedFor.__name__]
    frame = frame.fillna({name: "" for name, kind in COLUMNS.items() if kind is str})
    curve = DataFrame(curves, columns=list(CURVE_COLUMNS))
    found = Results(_typed(frame, COLUMNS), settings, _typed(curve, CURVE_COLUMNS))
    found.check(runs)
    return found


def folders_of(cell: Cell, conditions: Conditions, runs: Path) -> list[Path]:
    """The folders of a cell's run, one a seed."""
    name = Path(job_of(cell).name(cell, conditions)).parent
    paths = sorted(path.parent for path in (runs / name).glob(f"seed*/{FACTS}"))
    return [path for path in paths if path.name.removeprefix("seed").isdecimal()]


def _facts_of(
    results: RunResults, runs: Path, all_settings: dict[str, Any]
) -> dict[str, Any]:
    """What a run is, for each of its rows; its seed is that of its configuration."""
    folder = results.folder
    found: dict[str, Any] = {"run": folder.path.parent.relative_to(runs).as_posix()}
    try:
        found |= {k: v for k, v in folder.facts.items() if k == "conditions"}
        attempts, settings = folder.attempts, settings_of(folder.configuration)
        note = "" if folder.state == FINISHED else folder.state
        last = attempts[-1].get("versions", {}) if attempts else {}
        by, more = results.selected_by
        all_settings[config := fingerprint_of(settings)] = settings
        for key in ("device", "machine", "commit"):
            found[key] = "; ".join(sorted({str(e[key]) for e in attempts if key in e}))
        for key in MEASURED:
            found[key] = _value(results, METRIC_OF.get(key, key))["value"]
        return found | {
            "seed": folder.configuration["common"]["seed"],
            "note": note or folder.other_weights(),
            "config": config,
            "data": _data(folder.facts),
            "weights": folder.weights or "",
            "selected_by": f"{'max' if more else 'min'} {by}",
            "versions": ", ".join(f"{name} {last[name]}" for name in sorted(last)),
        }
    except UNREADABLE as error:
        seed = int(folder.path.name.removeprefix("seed"))
        return {"run": found["run"], "seed": seed, "note": _unreadable(error)}


def _unreadable(why: object) -> str:
    return f"{UNREAD}: {' '.join(str(why).split())}"


def _data(facts: dict[str, Any]) -> str:
    """The place in ``data-bin``, or the folder's name, and the fingerprint."""
    if not facts["data_fingerprint"]:
        return ""
    name = facts["data"].partition("/data-bin/")[2] or Path(facts["data"]).name
    return f"{name} ({facts['data_fingerprint']})"


def _figure(results: RunResults, cell: Cell, conditions: Conditions) -> dict[str, Any]:
    """ "value" of a cell's metric, or "note": why its run has none for it."""
    if cell.job == "train":
        if others := other_values(cell, conditions, results.folder.configuration):
            return {"value": None, "note": _unreadable(f"of {'; '.join(others)}")}
    return _value(results, cell.metric, cell.row)


def _value(results: RunResults, metric: str, row: str = "") -> dict[str, Any]:
    """ "value" of a metric, or "note": why there is none."""
    read, value = reader_of(metric), None
    try:
        value = read(results, row)
        note = f"finished without {metric}"
    except NotAskedFor:
        note = NotAskedFor.__name__
    except NotMeasured as reason:
        note = str(reason)
    except UNREADABLE as error:
        note = _unreadable(error)
    if value is not None and math.isfinite(value):
        return {"value": float(value)}
    return {"value": None, "note": note if value is None else f"{metric} is {value}"}


def _curve(
    results: RunResults, label: str, facts: dict[str, Any]
) -> Iterable[dict[str, Any]]:
    """The validations of a run: perplexity, or accuracy, or the loss."""
    if facts["note"].startswith(UNREAD):
        return
    run = {key: facts.get(key) for key in RUN} | {"preset": label}
    for record in results.records["valid"]:
        for name in ("valid_ppl", "valid_accuracy", "valid_loss"):
            try:
                value = float(record.get(name, math.nan))
            except (TypeError, ValueError):
                continue
            if math.isfinite(value):
                updates = int(record["valid_num_updates"])
                yield run | {"metric": name, "updates": updates, "value": value}
