"""What the runs of a table have in common, and in what compared ones differ."""

from collections.abc import Iterable
from typing import Any

from ..runs.plans import unread_keys
from ..tables.definitions import Table
from .run_records import Record

# of a configuration; what all rows of a table have in common is reported by these
CONDITIONS = (
    "task._name",
    "task.tokens_per_sample",
    "dataset.batch_size",
    "dataset.max_tokens",
    "dataset.max_valid_steps",
    "optimization.update_freq",
    "distributed_training.distributed_world_size",
    "optimization.max_update",
    "optimization.max_epoch",
    "checkpoint.patience",
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
# what may end a run before its max_update -> the value that does not
EARLIER_ENDS = {
    "optimization.max_epoch": 0,
    "checkpoint.patience": -1,
    "optimization.stop_time_hours": 0,
}
# keys that need not be equal in runs that are compared
NOT_COMPARED = ("common.seed", "task.seed", "common.user_dir", "task.data")
NOT_COMPARED += ("checkpoint.finetune_from_model",)
# keys in which rows may differ; seeds of a run and values of a sweep may not
OF_ROWS = ("model.", "weights")
# but in what presets scale for all rows alike, and in what was set by hand
WIDTH = "model.embed_dim"


def conditions_of(
    table: Table, cells: dict, runs: dict[str, dict[int, Record]]
) -> dict[str, Any]:
    """What the runs have in common, and every value in which compared ones differ.

    Args:
        table: that is reported.
        cells: (row, column) -> what was measured, with the names of its runs.
        runs: name -> seed -> record.
    """
    records = {
        f"{name}/seed{seed}": each
        for name, seeds in runs.items()
        for seed, each in seeds.items()
    }
    values = {name: each["identity"] for name, each in records.items()}
    sweep = list(table.sweep)
    unequal: dict[str, dict[str, Any]] = {}
    of_all_rows = _set_by_hand(records).keys() | {WIDTH}
    for group in _groups(table, cells, runs):
        _compare(values, group, (*NOT_COMPARED, *OF_ROWS), sweep, unequal)
        _compare_models(values, group, of_all_rows, sweep, unequal)
        _compare_seeds({name: runs[name] for name in sorted(group)}, unequal)
    for names in _of_cells(cells):
        _compare(values, names, NOT_COMPARED, sweep, unequal)
    first = next(iter(values.values()), {})
    return {
        "equal": {
            key: first[key]
            for key in CONDITIONS
            if key not in sweep
            and first.get(key) is not None
            and first[key] != EARLIER_ENDS.get(key)
            and len({str(each.get(key)) for each in values.values()}) == 1
        },
        "unequal": unequal,
        "set_by_hand": _set_by_hand(records),
        "changed_models": _changed_models(records),
        # the fingerprint tells data apart; folders may move
        "data": sorted({each["data"] for each in records.values()} - {None}),
        "seeds": sorted({seed for seeds in runs.values() for seed in seeds}),
    }


def _groups(table: Table, cells: dict, runs: dict[str, Any]) -> list[set[str]]:
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
    """Add to ``unequal`` the keys in which the group's runs differ.

    But those of models that none of the runs reads.
    """
    # a swept value may stand in several sections, as the learning rate does
    swept = {key.rpartition(".")[2] for key in sweep}
    members = {
        name: each for name, each in values.items() if name.rpartition("/")[0] in group
    }
    unread = unread_keys(*members.values())
    for key in dict.fromkeys(key for each in members.values() for key in each):
        if key.startswith(ignored) or key.rpartition(".")[2] in swept or key in unread:
            continue
        # a run from before a setting has no value, one from after perhaps an empty one
        found = {name: _value(each, key) for name, each in members.items()}
        if len({str(value) for value in found.values()}) > 1:
            unequal.setdefault(key, {}).update(found)


def _value(identity: dict[str, Any], key: str) -> Any:
    value = identity.get(key)
    return None if value == "" else value


def _compare_models(
    values: dict[str, dict[str, Any]],
    group: set[str],
    keys: Iterable[str],
    sweep: Iterable[str],
    unequal: dict[str, dict[str, Any]],
) -> None:
    """Likewise of these keys, among the models that have them."""
    for key in sorted(keys):
        if key.startswith(OF_ROWS):
            having = {
                name: {key: each[key]}
                for name, each in values.items()
                if each.get(key) is not None
            }
            _compare(having, group, (), sweep, unequal)


def _compare_seeds(
    group: dict[str, dict[int, Record]], unequal: dict[str, dict[str, Any]]
) -> None:
    found = {name: sorted(seeds) for name, seeds in group.items() if seeds}
    if len(set(map(str, found.values()))) > 1:
        unequal.setdefault("seeds", {}).update(found)


def _set_by_hand(records: dict[str, Record]) -> dict[str, dict[str, list[str]]]:
    """``--set``: key -> value -> runs."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, each in records.items():
        for key, value in each["set_by_hand"].items():
            found.setdefault(key, {}).setdefault(str(value), []).append(name)
    return found


def _changed_models(records: dict[str, Record]) -> dict[str, list[str]]:
    """Values of models that are others than their configuration files' -> runs."""
    found: dict[str, list[str]] = {}
    for name, each in records.items():
        unread = unread_keys(each["identity"])
        values = ", ".join(
            f"{key}: {value}"
            for key, value in each["changed_model"].items()
            if f"model.{key}" not in unread
        )
        if values:
            found.setdefault(values, []).append(name)
    return found
