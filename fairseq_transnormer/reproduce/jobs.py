"""The kinds of job: what each cell's run is called, needs and is."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from ..installation import CLONE
from . import finetune
from .data import Data
from .plan import Conditions, name_of, train_data, train_name, train_run
from .runs import Run
from .schema import Cell

# the benchmark's file in the run's folder
SPEED = "lra_speed.json"


class Job(NamedTuple):
    """A kind of job, by functions of a cell and its conditions."""

    name: Callable[[Cell, Conditions], str]  # cells of equal names share a run; fast
    data: Callable[[Cell, Conditions], Data]  # that the run needs
    run: Callable[[Cell, Conditions], Run]  # raises ValueError for a mistake
    # of a cell alone: cells whose runs must be finished before
    needs: Callable[[Cell], list[Cell]] = lambda cell: []
    most_gpus: int = 0  # that a run can use; 0 for as many as there are
    reads_data: bool = False  # ``run`` does


def _speed_name(cell: Cell, conditions: Conditions) -> str:
    return name_of(conditions, "lra_speed", {})


def _speed_run(cell: Cell, conditions: Conditions) -> Run:
    """Speed and memory of all systems of Table 7, measured in turns by one process."""
    if CLONE is None:
        raise ValueError(f"{cell.row}: benchmarks/ measures it, which no wheel has")
    device, speed = "cuda" if conditions.gpus else "cpu", conditions.preset.speed
    options = {k: v for k, v in speed.items() if k not in ("cpu", "cuda")}
    options |= speed.get(device, {})
    words = [sys.executable, "-m", "benchmarks", "lra_speed"]
    words += ["--device", device, "--output", SPEED]
    for name, value in options.items():
        words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    seed, name = conditions.seed, _speed_name(cell, conditions)
    settings = {"common": {"seed": seed}, "speed": {"device": device, **options}}
    return Run(name, settings, Data(conditions.root), seed, 0, tuple(words))


_TUNED = Job(finetune.name, finetune.data, finetune.run, reads_data=True)
JOBS = {
    "train": Job(train_name, train_data, train_run),
    "finetune": _TUNED._replace(needs=finetune.needs),
    "finetune_from_scratch": _TUNED,
    "finetune_checkpoint": _TUNED,
    "lra_speed": Job(_speed_name, lambda _, c: Data(c.root), _speed_run, most_gpus=1),
}


def job_of(cell: Cell) -> Job:
    """The job that runs this cell."""
    return JOBS[cell.job]


def with_needs(cells: Iterable[Cell]) -> list[Cell]:
    """One cell for each run: those of sweeps, and in front of each what it needs."""
    return [
        each
        for cell in cells
        for candidate in cell.candidates().values()
        for each in [*with_needs(job_of(candidate).needs(candidate)), candidate]
    ]


def of_seeds(
    cells: Iterable[Cell], conditions: Conditions, seeds: Iterable[int]
) -> dict[str, tuple[Cell, Conditions]]:
    """The runs of cells by name, each once, and in front of each what it needs.

    ValueError where cells of one name have other conditions.
    """
    found: dict[str, tuple[Cell, Conditions]] = {}
    for seed in seeds:
        for cell in with_needs(cells):
            own = replace(conditions, seed=seed if cell.seed is None else cell.seed)
            name = job_of(cell).name(cell, own)
            first, _ = found.setdefault(name, (cell, own))
            if first.conditions != cell.conditions:
                both = f"{first.conditions or 'none'} and {cell.conditions or 'none'}"
                raise ValueError(f"{name}: two tables' runs, with conditions {both}")
    return found
