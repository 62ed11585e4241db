"""What a report's JSON must have where it is read: pages and verdicts believe it."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from ...data.typed_mappings import (
    BOOLEAN,
    MAPPING,
    NUMBER,
    POSITIVE,
    TEXT,
    WHOLE,
    Kind,
    check_values,
    list_of,
    mapping_of,
    optional,
)
from ..errors import ReproduceError

ROUNDING = 1e-6  # of a mean, relative to it
_FIGURE = optional(NUMBER)
_TEXTS = list_of(TEXT)
_OF_SEEDS = Kind(
    "a mapping of seeds, each to a number",
    lambda value: (
        mapping_of(NUMBER).fits(value) and all(re.fullmatch(r"\d+", s) for s in value)
    ),
)
REPORT_KINDS = {
    "title": TEXT,
    "task": TEXT,
    "command": TEXT,
    "paper_sizes": BOOLEAN,
    "columns": _TEXTS,
    "curve": TEXT,
    "rows": mapping_of(mapping_of(MAPPING)),
    "runs": mapping_of(mapping_of(MAPPING)),
    "added": _TEXTS,
    "sweep": _TEXTS,
    "conditions": MAPPING,
    "images": _TEXTS,
    "attached": optional(TEXT),
    "remarks": _TEXTS,
}
CELL_KINDS = {
    "metric": TEXT,
    "paper": _FIGURE,
    "measured": _FIGURE,
    "deviation": _FIGURE,
    "difference": _FIGURE,
    "seeds": _OF_SEEDS,
    "run": optional(TEXT),
    "not_measured": optional(TEXT),
    "not_complete": optional(TEXT),
    "unfinished": mapping_of(TEXT),
    "errors": _TEXTS,
    "sweep": list_of(MAPPING),
    "mean_of": _TEXTS,
}
RUN_KINDS = {
    "state": TEXT,
    "updates": _FIGURE,
    "params_m": _FIGURE,
    "tokens_per_second": _FIGURE,
    "peak_memory_gib": _FIGURE,
    "wall_seconds": _FIGURE,
    "commits": _TEXTS,
    "devices": _TEXTS,
    "machines": _TEXTS,
    "versions": mapping_of(TEXT),
}
CONDITIONS_KINDS = {
    "equal": MAPPING,
    "unequal": mapping_of(MAPPING),
    "set_by_hand": MAPPING,
    "changed_models": MAPPING,
    "data": _TEXTS,
    "seeds": list_of(WHOLE),
}
# of the conditions in words; see claims_page
EQUAL_KINDS = {
    "dataset.batch_size": optional(POSITIVE),
    "dataset.max_tokens": optional(POSITIVE),
    "optimization.update_freq": optional(list_of(NUMBER)),
    "distributed_training.distributed_world_size": optional(POSITIVE),
    "task.tokens_per_sample": optional(POSITIVE),
    "dataset.max_valid_steps": optional(WHOLE),
}

# what is read of each
_OF_CELLS = ("measured", "deviation", "paper", "seeds", "run")
_OF_RUNS = ("state", "updates", "params_m", "devices")


def check_report(report: dict[str, Any], path: Path) -> None:
    """Raise ReproduceError, naming file and place, unless values are of their kinds
    and each figure is the mean of its seeds."""
    _check(f"{path}", report, REPORT_KINDS, ("rows", "runs", "columns"))
    for row, cells in report["rows"].items():
        for column, cell in cells.items():
            where = f"{path}: row {row}, column {column}"
            _check_cell(where, cell)
            for value in cell.get("sweep", ()):
                _check_cell(f"{where}, sweep", value)
    for name, seeds in report["runs"].items():
        for seed, run in seeds.items():
            _check(f"{path}: {name}/seed{seed}", run, RUN_KINDS, _OF_RUNS)
    if "conditions" in report:
        where, conditions = f"{path}: conditions", report["conditions"]
        _check(where, conditions, CONDITIONS_KINDS, ("equal",))
        _check(f"{where}: equal", conditions["equal"], EQUAL_KINDS)


def _check_cell(where: str, cell: dict[str, Any]) -> None:
    _check(where, cell, CELL_KINDS, _OF_CELLS)
    seeds, measured = cell["seeds"], cell["measured"]
    average = mean(seeds.values()) if seeds else None
    if measured is None or average is None:
        fits = measured is average
    else:
        fits = math.isclose(measured, average, rel_tol=ROUNDING, abs_tol=ROUNDING**2)
    if not fits:
        raise ReproduceError(
            f"{where}: measured={measured}; allowed: the mean of its seeds, {average}; "
            "report it from its runs"
        )


def _check(
    where: str, content: Any, kinds: Mapping[str, Kind], required: tuple[str, ...] = ()
) -> None:
    try:
        check_values(where, content, kinds, required)
    except ValueError as error:
        raise ReproduceError(
            f"{error}. The report is damaged, or of another form; report it from its "
            "runs"
        ) from error
