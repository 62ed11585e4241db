"""What rows of results come to: a table's figures, with the paper's."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import mean, stdev

import pandas
from pandas import DataFrame
from scipy import stats

from .results import Results
from .runs import UNFINISHED
from .schema import Cell, Preset, Table, with_sweeps_of
from .settings import SEQUENCES, Settings

FEWEST_ROWS = 4  # whose rank correlation is worth printing
NOT_ALL = "run"  # among settings, of which an earlier report had not all
# settings in which runs that are compared may differ
NOT_COMPARED = ("common.seed", "task.seed", NOT_ALL)
# in which rows may, but seeds of a run may not; presets scale all rows' widths alike
OF_ROWS, WIDTH = "model.", "model.embed_dim"


@dataclass
class Figures:
    """One metric of all seeds of one run, by seed."""

    values: dict[int, float] = field(default_factory=dict)  # of finished runs
    # why there is none, of runs that have ended; the state of the others
    reasons: dict[int, str] = field(default_factory=dict)
    unfinished: dict[int, str] = field(default_factory=dict)
    # what a sweep's best is chosen by; more is better
    selection: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: DataFrame) -> "Figures":
        """Those of the rows of one value of a sweep."""
        found = cls()
        ways = set(rows["selected_by"]) - {""}
        if len(ways) > 1:
            where = rows.iloc[0]["run"]
            raise ValueError(f"{where}: seeds chosen by {' and by '.join(ways)}")
        for row in rows.itertuples():
            if row.note in UNFINISHED:
                found.unfinished[row.seed] = row.note
                continue
            if math.isnan(row.value):
                found.reasons[row.seed] = row.note or "no figure"
            else:
                found.values[row.seed] = row.value
            if math.isfinite(row.selection):
                sign = 1 if row.selected_by.startswith("max") else -1
                found.selection[row.seed] = sign * row.selection
        return found

    @property
    def value(self) -> float | None:
        """The mean over the seeds."""
        return mean(self.values.values()) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Over the seeds; None of a single one."""
        return stdev(self.values.values()) if len(self.values) > 1 else None


@dataclass(kw_only=True)
class Measured(Figures):
    """A cell with what was measured: the figures of the sweep's best value."""

    cell: Cell  # with the paper's figure
    rows: DataFrame  # that they come from; none of a mean of columns
    chosen: str = ""  # the best value, as rows have it
    # all values that have rows -> their figures
    sweep: dict[str, Figures] = field(default_factory=dict)
    incomplete: str = ""  # what the figure is without; "" of all there should be

    def minus(self, other: "Measured") -> float:
        """The difference of means, over the seeds that both have if there are any."""
        seeds = sorted(self.values.keys() & other.values.keys())
        if not seeds:
            return self.value - other.value
        return mean(self.values[seed] - other.values[seed] for seed in seeds)

    def is_within_noise(self, other: "Measured") -> bool | None:
        """Whether they differ within the seeds' deviation; None of a single seed."""
        if None in (self.deviation, other.deviation):
            return None
        noise = (self.deviation**2 + other.deviation**2) ** 0.5
        return abs(self.minus(other)) <= noise


@dataclass
class MeasuredTable:
    """A table with what was measured with one preset."""

    table: Table
    label: str  # the preset, and what a command changed in it
    cells: dict[tuple[str, str], Measured]  # by row and column
    rows: DataFrame  # all that it has
    settings: Mapping[str, Settings]  # by the fingerprint of a configuration

    def column(self, name: str) -> list[Measured]:
        return [self.cells[row, name] for row in self.table.rows]


def measure(
    table: Table, results: Results, label: str, preset: Preset
) -> MeasuredTable:
    """The rows of a label, which is the preset's, with the preset's sweeps."""
    table, rows = with_sweeps_of(preset, table), results.runs
    rows = rows[(rows["preset"] == label) & (rows["table"] == table.name)]
    of = dict([*rows.groupby(["row", "column"], sort=False)])
    own = {(c.row, c.column): c for c in table.cells if not c.mean_of}
    cells = {key: _measured(c, of.get(key, rows[:0])) for key, c in own.items()}
    for cell in table.cells:
        if cell.mean_of:
            usual = preset.columns.get(table.name, cell.mean_of)
            cells[cell.row, cell.column] = _mean(cell, cells, usual)
    return MeasuredTable(table, label, cells, rows, results.settings)


def _measured(cell: Cell, rows: DataFrame) -> Measured:
    if rows.empty:
        return Measured(cell=cell, rows=rows)
    if other := set(rows["metric"]) - {cell.metric}:
        raise ValueError(
            f"{rows.iloc[0]['table']}, {cell.row}, {cell.column}: the table has "
            f"{cell.metric}, and lines of results have {', '.join(other)}; remove these"
        )
    rows = rows.sort_values("seed", kind="stable")
    parts = [(("run", "weights"), each) for _, each in rows.groupby("sweep")]
    # of all values of a sweep, unless these are of models
    if not any(key.startswith(OF_ROWS) for key in cell.sweep):
        parts.append((("weights",), rows))
    for keys, each in parts:
        for key in keys:
            if len(found := sorted(set(each[key]) - {""})) > 1:
                raise ValueError(
                    f"{each.iloc[0]['table']}, {cell.row}, {cell.column}: lines of "
                    f"results have different {key}, {', '.join(found)}; remove those "
                    "of all but one"
                )
    there = {v: Figures.of(each) for v, each in rows.groupby("sweep", sort=False)}
    planned = cell.candidates() if cell.config else ()  # else known by its lines alone
    wanted = list(dict.fromkeys([*planned, *there]))
    sweep = {value: there[value] for value in wanted if value in there}
    best = vars(sweep[chosen := best_of(sweep)])
    found = Measured(**best, cell=cell, rows=rows, chosen=chosen, sweep=sweep)
    without = (found.unfinished | found.reasons).items() if found.values else ()
    shown = ", ".join(f"seed {seed} ({why})" for seed, why in without)
    found.incomplete = f"without {shown}" if shown else ""
    if len(wanted) > 1:
        found.incomplete = _missing_of_sweep(sweep, wanted) or found.incomplete
    return found


def best_of(sweep: Mapping[str, Figures]) -> str:
    """The value of a sweep that is best on valid, on average over the seeds.

    Over those seeds that all values have, where some have more than others. A value
    with a seed that failed, as one that diverged does, comes after all without one.
    """
    there = [set(each.selection) for each in sweep.values() if each.selection]
    common = set.intersection(*there) if there else set()

    def merit(value: str) -> tuple[bool, float]:
        figures = sweep[value]
        if not figures.selection:
            return False, -math.inf
        seeds = common or figures.selection
        average = mean(figures.selection[seed] for seed in seeds)
        return not figures.reasons, average

    return max(sweep, key=merit)


def _missing_of_sweep(sweep: Mapping[str, Figures], wanted: Sequence[str]) -> str:
    """Which runs the choice of a sweep's value did without; "" if it had all."""
    ended = {  # a value that diverged has been tried
        value: {*figures.selection, *figures.values, *figures.reasons}
        for value, figures in sweep.items()
    }
    tried = {value: seeds for value, seeds in ended.items() if seeds}
    every = set().union(*tried.values())
    missing = [
        f"{value} without seed {', '.join(map(str, sorted(every - seeds)))}"
        for value, seeds in tried.items()
        if every - seeds
    ]
    if len(tried) < len(wanted):
        missing.insert(0, f"{len(tried)} of {len(wanted)} values were run")
    return "; ".join(missing) if tried else ""


def _mean(
    cell: Cell, cells: Mapping[tuple[str, str], Measured], usual: Iterable[str]
) -> Measured:
    """The mean of columns' figures, for the seeds that all of them have."""
    of = [cells[cell.row, name] for name in cell.mean_of if name in usual]
    there = [set(each.values) for each in of]
    seeds = sorted(set.intersection(*there))
    values = {s: mean(each.values[s] for each in of) for s in seeds}
    notes = [each.incomplete for each in of]
    if left_out := sorted(set.union(*there) - {*seeds}):
        notes.append(f"not all columns have seeds {', '.join(map(str, left_out))}")
    for seed in seeds:
        used = [each.rows[each.rows["sweep"] == each.chosen] for each in of]
        weights = [{*each[each["seed"] == seed]["weights"]} - {""} for each in used]
        if len(set.union(*weights)) > 1:
            notes.append("columns have different weights")
    if len(of) < len(cell.mean_of):  # the paper's figure is the mean of all
        cell = replace(cell, paper=None)
        notes.append(f"the mean of {', '.join(each.cell.column for each in of)}")
    incomplete = "; ".join(dict.fromkeys(filter(None, notes))) if values else ""
    rows = of[0].rows[:0]
    return Measured(values=values, cell=cell, rows=rows, incomplete=incomplete)


def unequal(
    measured: MeasuredTable, cells: Iterable[Measured]
) -> dict[str, dict[str, list[str]]]:
    """In what the runs of compared cells differ, but for what their rows name.

    Returns:
        setting, or "data" -> value -> names of runs.
    """
    cells = [each for each in cells if len(each.rows)]
    rows = pandas.concat([measured.rows[:0], *(each.rows for each in cells)])
    rows = rows[rows["config"] != ""].drop_duplicates(["run", "seed"])
    settings = [
        measured.settings.get(each, {"configuration": f"{each} is not known"})
        for each in rows["config"]
    ]
    keys = sorted(set().union(*settings))
    values = [[_shown(each, key) for key in keys] for each in settings]
    frame = DataFrame(values, index=rows["run"], columns=keys)
    frame = frame.assign(data=[*rows["data"]])
    of_one_run = frame.groupby(level=0).nunique().max()
    # rows and values of a sweep have these of their own
    overrides = [each.cell.overrides for each in cells]
    named = {
        key
        for key in set().union(*overrides)
        if "." in key and any(e.get(key) != overrides[0].get(key) for e in overrides)
    }
    swept = {key.rpartition(".")[2] for each in cells for key in each.cell.sweep}
    if "batch_size" in swept:  # of an update, and so of a validation
        swept |= {SEQUENCES, "batch_size_valid"}
    found = {}
    for key in frame:
        if key.startswith(NOT_COMPARED) or key in named:
            continue
        is_of_rows = key.startswith(OF_ROWS) and key != WIDTH
        values = of_one_run[key] if is_of_rows else frame[key].nunique()
        if values > 1 and key.rpartition(".")[2] not in swept:
            by_value = frame.index.to_series().groupby([*frame[key]]).unique()
            found[key] = {value: sorted(runs) for value, runs in by_value.items()}
    return found


def _shown(settings: Settings, key: str) -> str | None:
    """Settings are without fairseq's defaults; those of earlier reports are not all."""
    if key in settings:
        return str(settings[key])
    return None if NOT_ALL in settings else "default"


@dataclass
class Agreement:
    """Whether a column's figures are in the paper's order."""

    rows: int  # that both have
    disagreements: list[tuple[Measured, Measured]]  # the other way round
    ties: list[tuple[Measured, Measured]]  # that differ in the paper and are equal here
    is_within_error: bool  # no further apart than twice that of their means
    # rank correlations (tau-b); None within the error, and of too few rows
    spearman: float | None = None
    kendall: float | None = None


def agreement(column: Iterable[Measured]) -> Agreement | None:
    """Of a column; None for fewer than two rows that both have."""
    cells = [e for e in column if e.cell.paper is not None and e.value is not None]
    if len(cells) < 2:
        return None
    both = [each.cell.paper for each in cells], [each.value for each in cells]
    within = _within_error(cells)
    is_ranked = len(cells) >= FEWEST_ROWS and not within
    is_ranked = is_ranked and all(len(set(values)) > 1 for values in both)
    found = Agreement(len(cells), [], [], within)
    if is_ranked:
        found.spearman = float(stats.spearmanr(*both).statistic)
        found.kendall = float(stats.kendalltau(*both).statistic)
    for one, other in combinations(cells, 2):
        printed, here = one.cell.paper - other.cell.paper, one.minus(other)
        if printed and not here:
            found.ties.append((one, other))
        if printed * here < 0:
            found.disagreements.append((one, other))
    return found


def _within_error(cells: list[Measured]) -> bool:
    """Whether rows are no further apart than twice the standard error of their means,
    which four equal ones would be; False of single seeds."""
    values = [each.value for each in cells]
    several = [each for each in cells if each.deviation is not None]
    variances = [each.deviation**2 / len(each.values) for each in several]
    noise = mean(variances) ** 0.5 if variances else -1
    return max(values) - min(values) <= 2 * noise
