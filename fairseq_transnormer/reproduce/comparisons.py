"""What the runs of a table have in common, and in what compared ones differ."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..launching.configurations import flattened, get
from .metrics import RunResults
from .run_figures import Runs
from .tables import Table

DATA_FOLDER = "data-bin"  # of the presets
# of a configuration; what all rows of a table have in common is reported by these
CONDITIONS = (
    "task._name",
    "task.tokens_per_sample",
    "dataset.batch_size",
    "optimization.update_freq",
    "distributed_training.distributed_world_size",
    "optimization.max_update",
    "optimization.stop_time_hours",
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
ABSENT_AT_0 = ("optimization.stop_time_hours",)
# keys that need not be equal in runs that are compared
NOT_COMPARED = ("common.seed", "task.seed", "common.user_dir", "task.data")
NOT_COMPARED += ("checkpoint.finetune_from_model",)
# keys in which rows may differ; seeds of a run and values of a sweep may not
OF_ROWS = ("model.", "weights")


def conditions_of(table: Table, cells: dict, runs: dict[str, Runs]) -> dict[str, Any]:
    """What the runs have in common, and every value in which compared ones differ.

    Args:
        table: that is reported.
        cells: (row, column) -> what was measured, with the names of its runs.
        runs: name -> runs.
    """
    results = {
        f"{name}/seed{seed}": each
        for name, of_name in runs.items()
        for seed, each in of_name.seeds.items()
    }
    values = {name: _identity(each) for name, each in results.items()}
    sweep = list(table.sweep)
    unequal: dict[str, dict[str, Any]] = {}
    for group in _groups(table, cells, runs):
        _compare(values, group, (*NOT_COMPARED, *OF_ROWS), sweep, unequal)
        _compare_seeds([runs[name] for name in sorted(group)], unequal)
    for names in _of_cells(cells):
        _compare(values, names, NOT_COMPARED, sweep, unequal)
    first = next(iter(values.values()), {})
    return {
        "equal": {
            key: first[key]
            for key in CONDITIONS
            if key not in sweep
            and first.get(key) is not None
            and not (key in ABSENT_AT_0 and first[key] == 0)
            and len({str(each.get(key)) for each in values.values()}) == 1
        },
        "unequal": unequal,
        "set_by_hand": _set_by_hand(results),
        "changed_models": _changed_models(results),
        # the fingerprint tells data apart; folders may move
        "data": sorted(set(filter(None, map(_data_of, results.values())))),
        "seeds": sorted({seed for each in runs.values() for seed in each.seeds}),
    }


def _identity(results: RunResults) -> dict[str, Any]:
    """Everything that a run's figures depend on, by key."""
    folder, attempts = results.folder, results.status["attempts"]
    start = folder.start()
    found = flattened(folder.configuration())
    found["data"] = folder.description()["data_fingerprint"]
    found["weights"] = start and start.weights
    if attempts:
        commits = sorted({each.get("commit", "unknown") for each in attempts})
        found["commit"] = ", ".join(commits)
        versions = attempts[-1].get("versions", {})
        found |= {f"version of {name}": each for name, each in versions.items()}
    return found


def _groups(table: Table, cells: dict, runs: dict[str, Runs]) -> list[set[str]]:
    """Names of the runs that are compared: with a sweep, or with a choice of files a
    column, those of a column."""
    if not (table.sweep or table.columns_apart):
        return [set(runs)]
    return [
        set().union(*(_names(cells[row, column]) for row in table.rows))
        for column in table.columns
    ]


def _of_cells(cells: dict) -> list[set[str]]:
    """Names of the runs that one figure is chosen from and is the mean of."""
    return [names for cell in cells.values() if (names := _names(cell))]


def _names(cell: dict[str, Any]) -> set[str]:
    return {each["run"] for each in cell.get("sweep", [cell])} - {None}


def _compare(
    values: dict[str, dict[str, Any]],
    group: set[str],
    ignored: tuple[str, ...],
    sweep: Iterable[str],
    unequal: dict[str, dict[str, Any]],
) -> None:
    """Add to ``unequal`` the keys in which the group's runs differ."""
    # a swept value may stand in several sections, as the learning rate does
    swept = {key.rpartition(".")[2] for key in sweep}
    members = {
        name: each for name, each in values.items() if name.rpartition("/")[0] in group
    }
    for key in dict.fromkeys(key for each in members.values() for key in each):
        if key.startswith(ignored) or key.rpartition(".")[2] in swept:
            continue
        found = {name: each.get(key) for name, each in members.items()}
        if len({str(value) for value in found.values()}) > 1:
            unequal.setdefault(key, {}).update(found)


def _compare_seeds(group: list[Runs], unequal: dict[str, dict[str, Any]]) -> None:
    found = {each.name: sorted(each.seeds) for each in group if each.seeds}
    if len(set(map(str, found.values()))) > 1:
        unequal.setdefault("seeds", {}).update(found)


def _set_by_hand(results: dict[str, RunResults]) -> dict[str, dict[str, list[str]]]:
    """``--set``: key -> value -> runs."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, each in results.items():
        further = get(each.folder.description(), "origin.further_overrides") or {}
        for key, value in further.items():
            found.setdefault(key, {}).setdefault(str(value), []).append(name)
    return found


def _changed_models(results: dict[str, RunResults]) -> dict[str, list[str]]:
    """Values of models that are others than their configuration files' -> runs."""
    found: dict[str, list[str]] = {}
    for name, each in results.items():
        changed = get(each.folder.description(), "origin.changed_model") or {}
        if changed:
            values = ", ".join(f"{key}: {value}" for key, value in changed.items())
            found.setdefault(values, []).append(name)
    return found


def _data_of(results: RunResults) -> str | None:
    """None for a job without data, as a benchmark."""
    description = results.folder.description()
    fingerprint = description["data_fingerprint"]
    return (
        f"{_name_of(Path(description['data']))} ({fingerprint})"
        if fingerprint
        else None
    )


def _name_of(folder: Path) -> str:
    """The place in ``data-bin``, as recall_256/4; elsewhere the folder's own name."""
    parts = folder.parts
    if DATA_FOLDER not in parts[:-1]:
        return folder.name
    last = max(place for place, part in enumerate(parts[:-1]) if part == DATA_FOLDER)
    return "/".join(parts[last + 1 :])
