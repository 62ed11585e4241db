"""Results as rows: one run and one figure of a table is a line of runs.csv.

runs.csv            a line a figure: where it stands, its value, what its run was
configurations.csv  the settings of each configuration, by their fingerprint
curves.csv          a line a validation

Lines of another machine are added by concatenating its files to these.
"""

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.whole_files import write_text
from .errors import ReproduceError
from .jobs import job_of
from .metrics import NotAskedFor, NotMeasured, RunResults
from .plan import Conditions
from .runs import FACTS, FINISHED, UNREADABLE, WITHOUT_RESULT, RunFolder
from .schema import Cell, Table
from .settings import fingerprint_of

if TYPE_CHECKING:
    from pandas import DataFrame

RUNS, CONFIGURATIONS, CURVES = "runs.csv", "configurations.csv", "curves.csv"
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
    "updates": float,
    "parameters": float,
    "tokens_per_second": float,
    "peak_memory_gib": float,
    "seconds": float,
    **dict.fromkeys(("device", "machine", "versions", "commit", "run"), str),
    **dict.fromkeys(("config", "data", "weights"), str),
}
RUN = ["preset", "run", "seed", "config", "data", "weights"]
CURVE_KEY = (*RUN, "metric", "updates")
CURVE_COLUMNS: dict[str, type] = dict.fromkeys(CURVE_KEY, str)
CURVE_COLUMNS |= {"seed": int, "updates": int, "value": float}


class Results:
    """What the files of a folder have.

    Attributes:
        runs: see ``COLUMNS``.
        settings: fingerprint -> settings of a configuration.
        curves: see ``CURVE_COLUMNS``.
    """

    def __init__(self, runs: "DataFrame", settings: dict[str, Any], curves) -> None:
        self.runs, self.settings, self.curves = runs, settings, curves

    @classmethod
    def read(cls, folder: Path) -> "Results":
        """The files of a folder; nothing where there are none.

        Raises:
            ReproduceError: one cannot be read, or has two lines of one figure and seed,
                or of one run under two seeds.
        """
        import pandas

        tables, settings = {}, dict[str, Any]()
        wanted = {RUNS: COLUMNS, CURVES: CURVE_COLUMNS}
        wanted[CONFIGURATIONS] = {"config": str, "settings": str}
        for name, columns in wanted.items():
            path = folder / name
            try:
                found = pandas.read_csv(path, dtype=str, keep_default_na=False)
                # a header among the lines is that of a file that was concatenated
                headers = found[found.iloc[:, 0] == found.columns[0]]
                if (headers != [*found.columns]).any(axis=None):
                    raise ValueError("a header among the lines has other columns")
                found = found.drop(headers.index)
                tables[name] = _typed(found[list(columns)], columns)
                if name == CONFIGURATIONS:
                    settings = dict(tables[name].itertuples(index=False))
                    settings = {k: dict(json.loads(v)) for k, v in settings.items()}
            except FileNotFoundError:
                tables[name] = _typed(pandas.DataFrame(columns=list(columns)), columns)
            except (KeyError, OSError, TypeError, ValueError) as error:
                raise ReproduceError(f"{path}: {error}") from error
        found = cls(
            tables[RUNS].drop_duplicates(),
            settings,
            tables[CURVES].drop_duplicates(list(CURVE_KEY)),
        )
        found.check(folder / RUNS)
        return found

    def check(self, where: Path) -> None:
        """Raise ReproduceError where a figure would count twice."""
        runs = self.runs
        place = ["preset", "table", "row", "column", "sweep"]
        for key, what in (
            (list(KEY), "two lines of one figure and seed"),
            ([*place, "config", "data", "weights"], "one run under two seeds"),
        ):
            own = runs[runs["config"] != ""] if "config" in key else runs
            twice = own[own.duplicated(key, keep=False)]
            if len(twice):
                first = twice.iloc[0]
                shown = ", ".join(f"{name} {first[name]}" for name in KEY)
                raise ReproduceError(f"{where}: {what}: {shown}; remove one of them")

    def add(self, other: "Results") -> "Results":
        """With those of ``other``, which replace lines of the same figure and seed: of
        runs that are finished, or where there was no finished one."""
        import pandas

        runs = pandas.concat([self.runs, other.runs], ignore_index=True)
        is_new = runs.index >= len(self.runs)
        ended = runs["value"].notna() | ~runs["note"].isin(WITHOUT_RESULT)
        order = runs.assign(_ended=ended, _new=is_new)
        order = order.sort_values(["_ended", "_new"], kind="stable")
        runs = order.drop_duplicates(list(KEY), keep="last").sort_index()
        # a curve is that of the attempt that the row is of
        of_rows = [
            each.curves.merge(runs[runs["_new"] == is_new][RUN].drop_duplicates())
            for each, is_new in ((self, False), (other, True))
        ]
        curves = pandas.concat(of_rows).drop_duplicates(list(CURVE_KEY), keep="last")
        return Results(
            runs.drop(columns=["_ended", "_new"]),
            self.settings | other.settings,
            curves,
        )

    def write(self, folder: Path) -> None:
        """Write the three files, each whole; lines of one table stand together."""
        import pandas

        used = sorted(set(self.runs["config"]) & set(self.settings))
        lines = [[k, json.dumps(self.settings[k], sort_keys=True)] for k in used]
        settings = pandas.DataFrame(lines, columns=["config", "settings"])
        runs = self.runs.sort_values(["preset", "table"], kind="stable")
        curves = self.curves.sort_values(list(CURVE_KEY), kind="stable")
        for name, frame in (
            (RUNS, runs),
            (CONFIGURATIONS, settings),
            (CURVES, curves),
        ):
            write_text(folder / name, frame.to_csv(index=False, lineterminator="\n"))


def _typed(frame: "DataFrame", columns: dict[str, type]) -> "DataFrame":
    import pandas

    for name, kind in columns.items():
        if kind is not str:
            numbers = pandas.to_numeric(frame[name].replace("", math.nan))
            frame = frame.assign(**{name: numbers.astype(kind)})
    return frame


def from_runs(tables: Iterable[Table], conditions: Conditions, runs: Path) -> Results:
    """The rows of all runs of these tables that there are.

    Raises:
        ReproduceError: two folders are one run.
    """
    import pandas

    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    known: dict[Path, tuple[RunResults, dict[str, Any]]] = {}
    # names of runs take seconds to be composed
    there = (runs / conditions.label).is_dir()
    for table in tables if there else ():
        for cell in table.cells:
            for sweep, candidate in {} if cell.mean_of else cell.candidates().items():
                where = {"preset": conditions.label, "table": table.name}
                where |= {"row": cell.row, "column": cell.column, "sweep": sweep}
                for path in folders_of(candidate, conditions, runs):
                    if path not in known:
                        results = RunResults(RunFolder(path))
                        known[path] = results, _facts_of(results, runs, settings)
                        curves += _curve(results, conditions.label, known[path][1])
                    results, facts = known[path]
                    rows.append(where | facts | _figure(results, facts, cell))
        found = sum(row["table"] == table.name for row in rows)
        print(f"{table.name}: {found} figures of runs", flush=True)
    frame = pandas.DataFrame(rows, columns=list(COLUMNS))
    frame = frame[frame["note"] != NotAskedFor.__name__]
    texts = [name for name, kind in COLUMNS.items() if kind is str]
    frame[texts] = frame[texts].fillna("")
    curve = pandas.DataFrame(curves, columns=list(CURVE_COLUMNS))
    found = Results(_typed(frame, COLUMNS), settings, _typed(curve, CURVE_COLUMNS))
    found.check(runs)
    return found


def folders_of(cell: Cell, conditions: Conditions, runs: Path) -> list[Path]:
    """The folders of a cell's run, one a seed."""
    name = Path(job_of(cell).name(cell, conditions)).parent
    paths = (runs / name).glob("seed*")
    return sorted(
        path
        for path in paths
        if re.fullmatch(r"seed\d+", path.name) and (path / FACTS).exists()
    )


def _facts_of(
    results: RunResults, runs: Path, all_settings: dict[str, Any]
) -> dict[str, Any]:
    """What a run is, for each of its rows; its seed is that of its configuration."""
    folder = results.folder
    name = folder.path.parent.relative_to(runs).as_posix()
    try:
        facts, settings, attempts = folder.facts, folder.settings, folder.attempts
        note = "" if folder.state == FINISHED else folder.state
        all_settings[config := fingerprint_of(settings)] = settings
        by, more = results.selected_by
        found = {
            "run": name,
            "seed": folder.configuration["common"]["seed"],
            "note": note or folder.other_weights(),
            "config": config,
            "data": _data(facts),
            "weights": folder.weights or "",
            "selected_by": f"{'max' if more else 'min'} {by}",
            "device": _all(attempts, "device"),
            "machine": _all(attempts, "machine"),
            "commit": _all(attempts, "commit"),
            "versions": _versions(attempts),
        }
        for key, metric in (
            ("selection", "selection"),
            ("updates", "updates"),
            ("parameters", "params_m"),
            ("tokens_per_second", "tokens_per_second"),
            ("peak_memory_gib", "peak_memory_gib"),
            ("seconds", "wall_seconds"),
        ):
            try:
                found[key] = results.figure(metric)
            except NotMeasured:
                found[key] = None
    except UNREADABLE as error:
        seed = int(folder.path.name.removeprefix("seed"))
        return {"run": name, "seed": seed, "note": _unreadable(error)}
    return found


def _unreadable(error: Exception) -> str:
    return f"unreadable: {' '.join(str(error).split())}"


def _data(facts: dict[str, Any]) -> str:
    """The place in ``data-bin``, or the folder's name, and the fingerprint."""
    if not facts["data_fingerprint"]:
        return ""
    path = Path(facts["data"])
    parts = path.parts
    name = "/".join(parts[parts.index("data-bin") + 1 :]) if "data-bin" in parts else ""
    return f"{name or path.name} ({facts['data_fingerprint']})"


def _all(attempts: list[dict[str, Any]], key: str) -> str:
    return "; ".join(sorted({str(each[key]) for each in attempts if key in each}))


def _versions(attempts: list[dict[str, Any]]) -> str:
    last = attempts[-1].get("versions", {}) if attempts else {}
    return ", ".join(f"{name} {version}" for name, version in sorted(last.items()))


def _figure(results: RunResults, facts: dict[str, Any], cell: Cell) -> dict[str, Any]:
    """The cell's metric, or why it has no value."""
    found: dict[str, Any] = {"metric": cell.metric, "value": None}
    if facts["note"]:
        return found
    try:
        value = results.figure(cell.metric, cell.row)
    except NotAskedFor:
        return found | {"note": NotAskedFor.__name__}
    except NotMeasured as reason:
        return found | {"note": str(reason)}
    except ReproduceError:
        raise
    except UNREADABLE as error:
        return found | {"note": _unreadable(error)}
    if value is None:
        return found | {"note": f"finished without {cell.metric}"}
    if not math.isfinite(value):
        return found | {"note": f"{cell.metric} is {float(value)}"}
    return found | {"value": float(value)}


def _curve(
    results: RunResults, label: str, facts: dict[str, Any]
) -> Iterable[dict[str, Any]]:
    """The validations of a run: perplexity, or accuracy, or the loss."""
    if facts["note"].startswith("unreadable"):
        return
    for record in results.records["valid"]:
        for name in ("valid_ppl", "valid_accuracy", "valid_loss"):
            try:
                value = float(record.get(name, math.nan))
            except (TypeError, ValueError):
                continue
            if math.isfinite(value):
                yield {key: facts.get(key) for key in RUN} | {
                    "preset": label,
                    "metric": name,
                    "updates": int(record["valid_num_updates"]),
                    "value": value,
                }
