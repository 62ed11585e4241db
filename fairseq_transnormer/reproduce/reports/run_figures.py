"""The runs of a cell, and one metric of all: figures, and why some are missing."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any

from ..errors import ReproduceError
from ..runs.metrics import NotAskedFor, NotMeasured, RunResults
from ..runs.run_folder import DESCRIPTION, STATUS, RunFolder
from ..tables.definitions import Cell, Table, plain
from ..tables.jobs import Conditions, job_of
from .run_records import RecordedRun

SHOWN_MISSING = 4


@dataclass
class Runs:
    """All seeds of one run.

    Attributes:
        name: of its folder.
        seeds: ``RunResults`` of those whose folders there are, ``RecordedRun`` of
            others that an earlier report has.
    """

    name: str
    seeds: dict[int, Any]


@dataclass
class Figures:
    """One metric of all seeds of one run.

    Attributes:
        values: of the finished ones, by seed.
        reasons: why finished ones have none, as out of memory, by seed.
        errors: of finished ones that should have one, with the file to look at.
        unfinished: state of the others, by seed.
    """

    values: dict[int, float] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    unfinished: dict[int, str] = field(default_factory=dict)

    @property
    def without(self) -> str | None:
        """Which seeds the figures are without; None: of all there are."""
        if not (self.values and self.unfinished):
            return None
        seeds = (f"seed {seed} ({state})" for seed, state in self.unfinished.items())
        return f"without {', '.join(seeds)}"


def seeds_of(
    cell: Cell,
    conditions: Conditions,
    runs_dir: Path,
    recorded: Mapping[str, dict[int, RecordedRun]] = MappingProxyType({}),
) -> Runs:
    """The runs of a cell that there are, by seed.

    A folder that was renamed, as ``seed1-old``, is none of them. ``recorded`` has runs
    of an earlier report by name: for seeds without a folder, and, of finished runs, for
    those without a finished run in it.

    Raises:
        ReproduceError: a folder has another run's files.
    """
    name = Path(job_of(cell).name(cell, conditions)).parent
    found: dict[int, Any] = {}
    for path in (runs_dir / name).glob("seed*"):
        folder = RunFolder(path)
        if not re.fullmatch(r"seed\d+", path.name) or not folder.exists():
            continue
        description = folder.description()
        expected = str(name / path.name)
        there = description.get("name", expected)
        if there != expected or path.name != f"seed{description['seed']}":
            raise ReproduceError(
                f"{path / DESCRIPTION} is of the run {there}, seed "
                f"{description['seed']}; allowed in this folder: {expected}"
            )
        found[description["seed"]] = RunResults(folder)
    for seed, run in recorded.get(str(name), {}).items():
        if seed not in found or (run.is_finished and not found[seed].is_finished):
            found[seed] = run
    return Runs(str(name), dict(sorted(found.items())))


def incomplete_folders(
    tables: list[Table], conditions: Conditions, runs_dir: Path
) -> list[str]:
    """A line for each run with checkpoints that is not reported, as a file is lost."""
    names = {
        Path(job_of(candidate).name(candidate, conditions)).parent: None
        for table in tables
        for cell in table.cells
        if not cell.mean_of
        for candidate in cell.candidates()
    }
    found = []
    for name in names:
        for path in sorted((runs_dir / name).glob("seed*")):
            missing = [
                each for each in (DESCRIPTION, STATUS) if not (path / each).exists()
            ]
            is_run = re.fullmatch(r"seed\d+", path.name) is not None
            if is_run and missing and any(RunFolder(path).checkpoints.glob("*.pt")):
                found.append(
                    f"{path}: not reported from this folder: it has checkpoints, but "
                    f"no {' and no '.join(missing)}"
                )
    return found


def figures_of(metric: str, runs: Runs, row: str | None = None) -> Figures:
    """A metric of a cell's runs; ``row`` where rows share a run."""
    found = Figures()
    for seed, results in runs.seeds.items():
        if not results.is_finished:
            found.unfinished[seed] = results.status["state"]
            continue
        if results.problem is not None:
            found.errors.append(
                f"{results.place}: not reported, since {results.problem}"
            )
            continue
        try:
            value = results.figure(metric, row)
        except NotAskedFor:
            continue
        except NotMeasured as reason:
            found.reasons[seed] = str(reason)
            continue
        if value is None:
            of_row = f" of {row}" if row else ""
            found.errors.append(
                f"{results.place}: finished without {metric}{of_row}; its log: "
                f"{results.log_path}"
            )
        elif not math.isfinite(value):
            found.reasons[seed] = f"{metric} is {float(value)} with seed {seed}"
        else:
            found.values[seed] = float(value)
    return found


def best_of(candidates: list[Runs]) -> Runs:
    """The value of a sweep that is best on valid, on average over the seeds.

    Over those seeds that all values have, where some have more than others. A value
    with a seed that failed, as one that diverged does, comes after all without one.
    """
    if len(candidates) == 1:
        return candidates[0]
    figures = [figures_of("selection", runs) for runs in candidates]
    values = [each.values for each in figures]
    there = [set(each) for each in values if each]
    common = set.intersection(*there) if there else set()

    def merit(number: int) -> tuple[bool, float]:
        seeds = common or set(values[number])
        if not values[number]:
            return False, -math.inf
        average = mean(values[number][seed] for seed in seeds)
        # a loss that is no number leaves a finished run without a figure
        failed = figures[number].reasons or (
            "failed" in figures[number].unfinished.values()
        )
        return not failed, _sign(candidates[number]) * average

    return candidates[max(range(len(candidates)), key=merit)]


def _sign(runs: Runs) -> int:
    """1 if more is better, -1 if less is."""
    found = {results.selection for results in runs.seeds.values()}
    if len(found) > 1:
        raise ReproduceError(
            f"{runs.name}: seeds whose checkpoint_best.pt is chosen by different "
            f"metrics: {', '.join(sorted(name for name, _ in found))}"
        )
    ((_, sign),) = found
    return sign


def missing_of_sweep(values: dict[str, tuple[Cell, Runs]]) -> str | None:
    """Which runs the choice of a sweep's value did without; None: it had all.

    Args:
        values: name of the runs -> the cell of one value, and its runs.
    """
    figures = {
        name: figures_of("selection", runs) for name, (_, runs) in values.items()
    }
    # one that diverged has been tried
    finished = {
        name: {*found.values, *found.reasons} for name, found in figures.items()
    }
    if not any(finished.values()):
        return None
    seeds = {seed for _, runs in values.values() for seed in runs.seeds}
    missing = [
        f"{_setting(values[name][0], values)} seed {seed}"
        for name, there in finished.items()
        for seed in sorted(seeds - there)
    ]
    if not missing:
        return None
    if (more := len(missing) - SHOWN_MISSING) > 0:
        missing[SHOWN_MISSING:] = [f"and {more} more"]
    chosen_from = sum(map(bool, finished.values()))
    return (
        f"the best of {chosen_from} of {len(values)} values; without a figure: "
        f"{', '.join(missing)}"
    )


def _setting(cell: Cell, values: dict[str, tuple[Cell, Runs]]) -> str:
    """What tells one value of a sweep from the others."""
    cells = [each for each, _ in values.values()]
    varied = [
        key
        for key, value in cell.overrides.items()
        if any(each.overrides.get(key) != value for each in cells)
    ]
    return " ".join(f"{key}={_shown(cell.overrides[key])}" for key in varied)


def _shown(value: Any) -> str:
    return str(plain(value))
