"""What was measured for a table, beside the paper's figures."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from types import MappingProxyType
from typing import Any

from ..errors import ReproduceError
from ..tables.definitions import Cell, Table
from ..tables.jobs import Conditions
from .comparisons import conditions_of
from .ranks import agreement
from .run_figures import Runs, best_of, figures_of, missing_of_sweep, seeds_of
from .run_records import Record, RecordedRun, record_of, without_common

RecordedRuns = Mapping[str, dict[int, RecordedRun]]
# the runs of a sweep's values by name; of a cell without a sweep there is one
Candidates = dict[str, tuple[Cell, Runs]]
MOST_CURVES = 20  # that can be told apart in one picture


def measure(
    table: Table,
    conditions: Conditions,
    runs_dir: Path,
    recorded: RecordedRuns = MappingProxyType({}),
    beside: Mapping[str, dict[int, list[RecordedRun]]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Everything about a table that report writes, as plain data.

    Args:
        table: that is reported.
        conditions: whose preset names the runs.
        runs_dir: where they are.
        recorded: name -> seed -> those of an earlier report, for what is not there.
        beside: likewise, of other tables' reports, for what is in neither and has the
            same values set by hand as all that is; none, where there is nothing.

    Raises:
        ReproduceError: other tables' reports have different runs of one name and seed.
    """
    runs, candidates = _runs_of(table, conditions, runs_dir, recorded)
    _take_from_other_tables(runs, beside)
    cells = _cells(table, candidates, conditions)
    records = {
        name: {
            seed: _record(results, table.curve) for seed, results in each.seeds.items()
        }
        for name, each in runs.items()
    }
    common, without = without_common(records)
    return {
        "table": table.name,
        "title": table.title,
        "task": table.task,
        "paper_sizes": conditions.preset.paper_sizes,
        "columns": table.columns,
        "curve": table.curve,
        "rows": {
            row: {column: cells[row, column] for column in table.columns}
            for row in table.rows
        },
        "agreement": {
            column: _agreement(table, cells, column) for column in table.ranked
        },
        "runs": without,
        "common_identity": common,
        "added": [
            f"{name}/seed{seed}"
            for name, each in runs.items()
            for seed, results in each.seeds.items()
            if isinstance(results, RecordedRun)
        ],
        "sweep": list(table.sweep),
        "conditions": conditions_of(table, cells, records),
        "curves": {
            name: _curve(records[run], table.curve)
            for name, run in _runs_by_curve(table, cells, records).items()
        },
    }


def _runs_of(
    table: Table, conditions: Conditions, runs_dir: Path, recorded: RecordedRuns
) -> tuple[dict[str, Runs], list[tuple[Cell, Candidates]]]:
    """The runs by name; of each cell but means, those of its sweep's values. Cells that
    share a run share the object."""
    runs: dict[str, Runs] = {}
    of_cells = []
    for cell in table.cells:
        if cell.mean_of:
            continue
        candidates = {}
        for candidate in cell.candidates():
            found = seeds_of(candidate, conditions, runs_dir, recorded)
            found = runs.setdefault(found.name, found)
            candidates[found.name] = (candidate, found)
        of_cells.append((cell, candidates))
    return runs, of_cells


def _cells(
    table: Table, of_cells: list[tuple[Cell, Candidates]], conditions: Conditions
) -> dict[tuple[str, str], dict[str, Any]]:
    """The figures by row and column."""
    cells = {}
    for cell, candidates in of_cells:
        figures = _cell(cell, best_of([found for _, found in candidates.values()]))
        if cell.sweep:
            figures |= _sweep(cell, candidates, figures["not_complete"])
        cells[cell.row, cell.column] = figures
    for cell in table.cells:
        if not cell.mean_of:
            continue
        usual = conditions.preset.columns.get(table.name, cell.mean_of)
        of = [column for column in cell.mean_of if column in usual]
        if len(of) < len(cell.mean_of):
            # the paper's figure is the mean of all
            cell = replace(cell, paper=None)
        cells[cell.row, cell.column] = _mean(
            cell, {column: cells[cell.row, column] for column in of}
        )
    return cells


def _take_from_other_tables(
    runs: dict[str, Runs], beside: Mapping[str, dict[int, list[RecordedRun]]]
) -> None:
    """Add to names without a finished run, if the same was set by hand as elsewhere."""
    by_hand: list[dict[str, Any]] = [
        results.set_by_hand for each in runs.values() for results in each.seeds.values()
    ] or [{}]
    for name, each in runs.items():
        if any(results.is_finished for results in each.seeds.values()):
            continue
        for seed, found in sorted(beside.get(name, {}).items()):
            fitting = [
                run
                for run in found
                if all(run.set_by_hand == others for others in by_hand)
            ]
            finished = [run for run in fitting if run.is_finished]
            for run in finished[1:]:
                if run.record["identity"] != finished[0].record["identity"]:
                    raise ReproduceError(
                        f"{finished[0].place} and {run.place} are different runs; "
                        "allowed: report without --add, or one of them"
                    )
            if finished:
                each.seeds[seed] = finished[0]
            elif fitting:  # those that failed; one that is here is a later attempt
                each.seeds.setdefault(seed, fitting[0])


def errors_of(measured: dict[str, Any]) -> list[str]:
    """Why finished runs are without a figure; the table is not right before."""
    return list(
        dict.fromkeys(
            error
            for columns in measured["rows"].values()
            for cell in columns.values()
            for error in cell["errors"]
        )
    )


def _runs_by_curve(
    table: Table, cells: dict, records: dict[str, dict[int, Record]]
) -> dict[str, str]:
    """A run's name by its curve's: the row, and the column where a row has several. Of
    more than can be told apart, those of the column that has been run most."""
    runs: dict[str, dict[str, str]] = {}  # rows and names by column
    seen = set()
    for cell in table.cells:
        run = cells[cell.row, cell.column].get("run")
        if run is not None and (cell.row, run) not in seen:
            seen.add((cell.row, run))
            runs.setdefault(cell.column, {})[cell.row] = run
    several = len(runs) > 1
    if len(seen) > MOST_CURVES:
        finished = {
            column: sum(bool(records[run]) for run in rows.values())
            for column, rows in runs.items()
        }
        run_most = max(finished, key=finished.__getitem__)
        runs = {run_most: runs[run_most]}
    return {
        f"{row} {column}" if several else row: run
        for column, rows in runs.items()
        for row, run in rows.items()
    }


def _cell(cell: Cell, runs: Runs) -> dict[str, Any]:
    found = figures_of(cell.metric, runs, cell.row)
    return _figure(cell, found.values) | {
        "run": runs.name,
        "not_measured": "; ".join(sorted(set(found.reasons.values()))) or None,
        "not_complete": found.without,
        "unfinished": found.unfinished,
        "errors": found.errors,
    }


def _sweep(cell: Cell, candidates: Candidates, without: str | None) -> dict[str, Any]:
    """All values of a cell's sweep, and which of them were not there to choose from."""
    values = [
        {
            "values": {key: candidate.overrides[key] for key in cell.sweep},
            **_cell(candidate, found),
        }
        for candidate, found in candidates.values()
    ]
    errors = [error for each in values for error in each["errors"]]
    for _, runs in candidates.values():
        errors += figures_of("selection", runs).errors
    return {
        "sweep": values,
        "not_complete": missing_of_sweep(candidates) or without,
        "errors": list(dict.fromkeys(errors)),
    }


def _mean(cell: Cell, of: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The mean of columns' cells, for the seeds that all of them have."""
    there = [set(each["seeds"]) for each in of.values()]
    seeds = set.intersection(*there)
    values = {
        seed: mean(each["seeds"][seed] for each in of.values())
        for seed in sorted(seeds)
    }
    left_out = sorted(set.union(*there) - seeds)
    not_complete = [each["not_complete"] for each in of.values()]
    if seeds and left_out:
        shown = ", ".join(map(str, left_out))
        not_complete.append(f"not all of {', '.join(of)} have seeds {shown}")
    return _figure(cell, values) | {
        "run": None,
        "not_complete": "; ".join(dict.fromkeys(filter(None, not_complete))) or None,
        "unfinished": {
            seed: state
            for each in of.values()
            for seed, state in each["unfinished"].items()
        },
        "mean_of": list(of),
    }


def _figure(cell: Cell, values: dict[int, float]) -> dict[str, Any]:
    average = mean(values.values()) if values else None
    difference = None
    if average is not None and cell.paper is not None:
        difference = average - cell.paper
    return {
        "metric": cell.metric,
        "paper": cell.paper,
        "paper_dash": cell.paper_dash,
        "measured": average,
        "deviation": stdev(values.values()) if len(values) > 1 else None,
        "seeds": values,
        "difference": difference,
        "not_measured": None,
        "not_complete": None,
        "unfinished": {},
        "errors": [],
    }


def _agreement(table: Table, cells: dict, column: str) -> dict[str, Any] | None:
    def side(key: str) -> dict[str, float]:
        found = {row: cells[row, column][key] for row in table.rows}
        return {row: value for row, value in found.items() if value is not None}

    seeds = {row: len(cells[row, column]["seeds"]) for row in table.rows}
    return agreement(side("paper"), side("measured"), side("deviation"), seeds)


def _record(results: Any, curve: str) -> Record:
    if isinstance(results, RecordedRun):
        return results.record
    return record_of(results, curve)


def _curve(records: dict[int, Record], key: str) -> dict[str, list[float]]:
    """That of the first seed."""
    empty: dict[str, list[float]] = {"updates": [], key: []}
    return records[min(records)]["curve"] if records else empty
