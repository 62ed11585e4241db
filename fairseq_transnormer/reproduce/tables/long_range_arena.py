"""Long-Range Arena: a kind of job for Table 6 and one for Table 7.

A cell of Table 6 names its task by ``lra`` among its overrides (a file of configs/lra/)
and its system by ``model``. Table 7 is one run for all systems: its rows read their
figures from that run's measurements.
"""

import sys
from functools import partial
from pathlib import Path
from statistics import median

from ...data.typed_mappings import (
    ABOVE_0,
    MAPPING,
    NUMBER,
    POSITIVE,
    TEXT,
    Kind,
    check_values,
    list_of,
    optional,
    read_json,
)
from ...installation import CLONE
from ..errors import ReproduceError
from ..runs.metrics import GIBIBYTE, METRICS, NotAskedFor, NotMeasured, RunResults
from ..runs.plans import Plan, Step
from .corpora import LabelledTokens, NoData
from .definitions import Cell
from .jobs import Conditions, HydraTrainWithoutText, run_name

TASK = "long_range_arena"
ARENA = "lra"
# the benchmark's file in the run's folder
SPEED = "speed/lra_speed.json"
VANILLA, WITH_SDPA = "Transformer", "Transformer, SDPA"
PHASES = {"infer": "inference", "train": "training"}
THOUSANDS = (1, 2, 3, 4, 5, 8, 16)
_SPEED_KINDS = {"measurements": list_of(MAPPING)}
_MEASUREMENT_KINDS = {
    "contestant": TEXT,
    "phase": TEXT,
    "length": POSITIVE,
    "seconds": Kind(
        "a list of numbers above 0, one at least",
        lambda value: list_of(ABOVE_0).fits(value) and len(value) > 0,
    ),
    "peak_bytes": optional(NUMBER),
    "skipped": TEXT,
}


class Arena(HydraTrainWithoutText):
    """Training on one of the five tasks."""

    def data(self, cell: Cell, conditions: Conditions) -> LabelledTokens:
        """The task's folder in that of all tasks."""
        folder = conditions.data_folder(TASK) / cell.overrides[ARENA]
        return LabelledTokens(folder, TASK)


class Speed:
    """Speed and memory of all systems, measured in turns by one process."""

    most_devices = 1

    def name(self, cell: Cell, conditions: Conditions) -> str:
        return run_name(conditions, ["lra_speed"])

    def data(self, cell: Cell, conditions: Conditions) -> NoData:
        return NoData(conditions.root)

    def needs(self, cell: Cell) -> list[Cell]:
        return []

    def plan(self, cell: Cell, conditions: Conditions) -> Plan:
        device = "cuda" if conditions.gpus else "cpu"
        of_preset = conditions.preset.speed
        options = {
            **{key: v for key, v in of_preset.items() if key not in ("cpu", "cuda")},
            **of_preset.get(device, {}),
        }
        words = [
            word
            for name, value in options.items()
            for word in (f"--{name}", *(value if isinstance(value, list) else [value]))
        ]
        if CLONE is None:
            raise ReproduceError(
                f"{cell.row}: benchmarks/ measures it, which no wheel has; allowed in "
                "a clone of the repository"
            )
        measure = [sys.executable, "-m", "benchmarks", "lra_speed"]
        folder = SPEED.partition("/")[0]
        return Plan(
            name=self.name(cell, conditions),
            configuration={"device": device, **options},
            data=str(conditions.root),
            data_fingerprint="",
            seed=conditions.seed,
            updates=1,
            steps=[
                Step("measure", [*measure, "--device", device, "--output", SPEED]
                     + [str(word) for word in words]),
                # tables of its own: ratios to both vanilla transformers
                Step("report", [sys.executable, "-m", "benchmarks", "report",
                                "--folder", folder]),
            ],
            origin={"preset": conditions.preset.name},
        )  # fmt: skip


def _measurement(results: RunResults, row: str | None, phase: str, length: int) -> dict:
    """A row of the benchmark; empty where it is not there.

    Raises:
        NotMeasured: it ran out of memory or was left out.
        NotAskedFor: the preset measures no such length.
    """
    path = results.folder.path / SPEED
    if not path.exists():
        return {}
    asked_for = False
    for each in _measurements(path):
        if (each["phase"], each["length"]) == (phase, length):
            asked_for = True
            if each["contestant"] == row:
                if "skipped" in each:
                    raise NotMeasured(each["skipped"])
                return each
    if not asked_for:
        raise NotAskedFor(f"{phase} of {length} tokens")
    return {}


def _measurements(path: Path) -> list[dict]:
    """The benchmark's rows.

    Raises:
        ReproduceError: the file is not as the benchmark writes it.
    """
    try:
        rows = read_json(path, _SPEED_KINDS, _SPEED_KINDS)["measurements"]
        for row in rows:
            required = () if "skipped" in row else ("seconds", "peak_bytes")
            required = ("contestant", "phase", "length", *required)
            check_values(f"{path}: measurements", row, _MEASUREMENT_KINDS, required)
    except OSError as error:
        raise ReproduceError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ReproduceError(f"{error}. The file is damaged; measure again") from error
    return rows


def steps_per_second(
    results: RunResults, phase: str, length: int, row: str | None = None
) -> float | None:
    """Median over the samples."""
    found = _measurement(results, row or results.row, phase, length)
    return 1 / median(found["seconds"]) if found else None


def times_as_fast(
    results: RunResults, phase: str, length: int, than: str
) -> float | None:
    """Steps per second over those of another row."""
    ours = steps_per_second(results, phase, length)
    other = steps_per_second(results, phase, length, than)
    return ours / other if ours and other else None


def memory(results: RunResults, phase: str, length: int) -> float | None:
    """Peak of a step beyond weights and the optimizer's sums, in GiB."""
    found = _measurement(results, results.row, phase, length)
    return found["peak_bytes"] / GIBIBYTE if found else None


for short, phase in PHASES.items():
    for thousand in THOUSANDS:
        where = {"phase": phase, "length": 1024 * thousand}
        name = f"{short}_{thousand}K"
        METRICS.register(name)(partial(steps_per_second, **where))
        METRICS.register(f"{name}_memory")(partial(memory, **where))
        for than, label in ((VANILLA, "vanilla"), (WITH_SDPA, "sdpa")):
            METRICS.register(f"{name}_over_{label}")(
                partial(times_as_fast, **where, than=than)
            )
