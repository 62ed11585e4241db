"""What was measured for a table, beside the paper's figures."""

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from .configurations import flattened, get
from .jobs import Conditions, job_of
from .metrics import NotMeasured, RunResults, read_metric
from .ranks import agreement
from .runs import RunFolder
from .tables import Cell, Table

RESOURCES = ("params_m", "tokens_per_second", "peak_memory_gib", "wall_seconds")
# of a configuration; what all rows of a table have in common is told by these
CONDITIONS = (
    "task._name",
    "task.tokens_per_sample",
    "dataset.batch_size",
    "optimization.update_freq",
    "distributed_training.distributed_world_size",
    "optimization.max_update",
    "optimization.lr",
    "lr_scheduler._name",
    "lr_scheduler.warmup_updates",
    "optimizer.adam_betas",
    "optimizer.adam_eps",
    "optimizer.weight_decay",
    "optimization.clip_norm",
    "common.fp16",
    "common.bf16",
    "common.cpu",
)
# keys that need not be equal in rows that are compared
NOT_COMPARED = ("model.", "common.seed", "common.user_dir", "task.data")
NOT_COMPARED += ("checkpoint.finetune_from_model",)


@dataclass
class Runs:
    """All seeds of one run."""

    name: str
    seeds: dict[int, RunResults]


def seeds_of(cell: Cell, conditions: Conditions, runs_dir: Path) -> Runs:
    """The runs of a cell that there are, by seed."""
    name = Path(job_of(cell).name(cell, conditions)).parent
    found = {}
    for path in sorted((runs_dir / name).glob("seed*")):
        folder = RunFolder(path)
        if folder.exists():
            found[folder.description()["seed"]] = RunResults(folder)
    return Runs(str(name), found)


def measure(table: Table, conditions: Conditions, runs_dir: Path) -> dict[str, Any]:
    """Everything about a table that report writes, as plain data."""
    runs: dict[str, Runs] = {}
    cells = {}
    for cell in table.cells:
        if cell.mean_of:
            continue
        candidates = {}
        for candidate in cell.candidates():
            found = seeds_of(candidate, conditions, runs_dir)
            found = runs.setdefault(found.name, found)
            candidates[found.name] = (candidate, found)
        chosen = _best_of([found for _, found in candidates.values()])
        cells[cell.row, cell.column] = _cell(cell, chosen)
        if cell.sweep:
            cells[cell.row, cell.column]["sweep"] = [
                {
                    "values": {key: candidate.overrides[key] for key in cell.sweep},
                    **_cell(candidate, found),
                }
                for candidate, found in candidates.values()
            ]
    for cell in table.cells:
        if cell.mean_of:
            usual = conditions.preset.columns.get(table.name, cell.mean_of)
            of = [column for column in cell.mean_of if column in usual]
            if len(of) < len(cell.mean_of):
                # the paper's figure is the mean of all
                cell = replace(cell, paper=None)
            cells[cell.row, cell.column] = _mean(
                cell, {column: cells[cell.row, column] for column in of}
            )
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
        "runs": {name: _resources(each) for name, each in runs.items()},
        "sweep": list(table.sweep),
        "conditions": _conditions(
            list(runs.values()), _groups(table, cells, runs), list(table.sweep)
        ),
        "curves": {
            f"{cell.row}{f' {cell.column}' if _many(table) else ''}": _curve(
                runs[cells[cell.row, cell.column]["run"]], table.curve
            )
            for cell in (table.cells if _many(table) else _shown(table, cells, runs))
            if not cell.mean_of
        },
    }


def _many(table: Table) -> bool:
    """Whether the columns of a table are different runs."""
    first = [c for c in table.cells if c.row == table.rows[0] and not c.mean_of]
    return len({cell.config for cell in first}) > 1


def _shown(table: Table, cells: dict, runs: dict[str, Runs]) -> list[Cell]:
    """The first column that has been run, or the first."""
    there = [
        cell.column
        for cell in table.cells
        if not cell.mean_of and runs[cells[cell.row, cell.column]["run"]].seeds
    ]
    column = min(there or table.columns, key=table.columns.index)
    return [cell for cell in table.cells if cell.column == column]


def _best_of(candidates: list[Runs]) -> Runs:
    """The value of a sweep that is best on valid, on average over the seeds."""

    def merit(runs: Runs) -> float:
        values = _finished("selection", runs, None).values()
        if not values:
            return float("-inf")
        (sign,) = {results.selection[1] for results in runs.seeds.values()}
        return sign * mean(values)

    return candidates[0] if len(candidates) == 1 else max(candidates, key=merit)


def _finished(metric: str, runs: Runs, row: str | None) -> dict[int, float]:
    """A metric of the finished runs, by seed."""
    values = {
        seed: _read(metric, results if row is None else results.of_row(row))
        for seed, results in runs.seeds.items()
        if results.folder.is_finished()
    }
    return {seed: v for seed, v in values.items() if isinstance(v, int | float)}


def _read(metric: str, results: RunResults) -> float | str | None:
    """A metric, or why it was not measured."""
    try:
        return read_metric(metric, results)
    except NotMeasured as reason:
        return str(reason)


def _cell(cell: Cell, runs: Runs) -> dict[str, Any]:
    values = _finished(cell.metric, runs, cell.row)
    reasons = {
        reason
        for results in runs.seeds.values()
        if results.folder.is_finished()
        and isinstance(reason := _read(cell.metric, results.of_row(cell.row)), str)
    }
    return _figure(cell, values) | {
        "run": runs.name,
        "not_measured": "; ".join(sorted(reasons)) or None,
    }


def _mean(cell: Cell, of: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The mean of columns' cells, for the seeds that all of them have."""
    seeds = set.intersection(*(set(each["seeds"]) for each in of.values()))
    values = {
        seed: mean(each["seeds"][seed] for each in of.values())
        for seed in sorted(seeds)
    }
    return _figure(cell, values) | {
        "run": None,
        "not_measured": None,
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
    }


def _agreement(table: Table, cells: dict, column: str) -> dict[str, Any] | None:
    def side(key: str) -> dict[str, float]:
        found = {row: cells[row, column][key] for row in table.rows}
        return {row: value for row, value in found.items() if value is not None}

    return agreement(side("paper"), side("measured"), side("deviation"))


def _resources(runs: Runs) -> dict[str, Any]:
    return {
        seed: {
            "state": results.status["state"],
            **{name: read_metric(name, results) for name in RESOURCES},
            "updates": read_metric("updates", results),
            "commits": sorted({a["commit"] for a in results.status["attempts"]}),
            "devices": sorted({a["device"] for a in results.status["attempts"]}),
            "machines": sorted({a["machine"] for a in results.status["attempts"]}),
            "versions": results.status["attempts"][-1]["versions"]
            if results.status["attempts"]
            else {},
        }
        for seed, results in runs.seeds.items()
    }


def _groups(table: Table, cells: dict, runs: dict[str, Runs]) -> list[set[str]]:
    """Names of the runs that are compared: with a sweep, or with a choice of files a
    column, those of a column."""
    if not (table.sweep or table.columns_apart):
        return [set(runs)]
    of_columns = []
    for column in table.columns:
        found = [cells[row, column] for row in table.rows]
        names = {each["run"] for cell in found for each in cell.get("sweep", [cell])}
        of_columns.append(names - {None})
    return of_columns


def _conditions(
    runs: list[Runs], groups: list[set[str]], sweep: list[str]
) -> dict[str, Any]:
    """What the runs have in common, and every value in which compared ones differ."""
    # a swept value may stand in several sections, as the learning rate does
    swept = {key.rpartition(".")[2] for key in sweep}
    configurations, data = {}, set()
    for each in runs:
        for seed, results in each.seeds.items():
            name = f"{each.name}/seed{seed}"
            configurations[name] = results.folder.configuration()
            description = results.folder.description()
            data.add((description["data"], description["data_fingerprint"]))
    flat = {name: flattened(each) for name, each in configurations.items()}
    unequal: dict[str, dict[str, Any]] = {}
    varied = set()
    for key in dict.fromkeys(key for each in flat.values() for key in each):
        if key.startswith(NOT_COMPARED) or key.rpartition(".")[2] in swept:
            continue
        for group in groups:
            values = {
                name: each.get(key)
                for name, each in flat.items()
                if name.rpartition("/")[0] in group
            }
            if len({str(value) for value in values.values()}) > 1:
                unequal.setdefault(key, {}).update(values)
        if len({str(each.get(key)) for each in flat.values()}) > 1:
            varied.add(key)
    first = next(iter(configurations.values()), {})
    return {
        "equal": {
            key: get(first, key)
            for key in CONDITIONS
            if key not in varied and key not in sweep and get(first, key) is not None
        },
        "unequal": unequal,
        # the fingerprint tells data apart; folders may move
        "data": [f"{Path(folder).name} ({mark})" for folder, mark in sorted(data)],
        "seeds": sorted({seed for each in runs for seed in each.seeds}),
    }


def _curve(runs: Runs, key: str) -> dict[str, list[float]]:
    """What the validation records have under ``key``, by updates, of the first seed."""
    for _, results in sorted(runs.seeds.items()):
        records = [each for each in results.records["valid"] if key in each]
        return {
            "updates": [int(each["valid_num_updates"]) for each in records],
            key: [float(each[key]) for each in records],
        }
    return {"updates": [], key: []}
