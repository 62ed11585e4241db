"""Options that commands share: which runs, and how they run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..installation import CONFIGS

MOST_SEED = 2**32 - 1  # numpy's
Words = tuple[str, ...]
# one value or several, and several times
Many = tyro.conf.UseAppendAction[tuple[Words, ...]]
Names = Annotated[Many, tyro.conf.arg(metavar="NAME ...")]
Tables = Annotated[Words, tyro.conf.arg(metavar="TABLE ...")]
Problems = Annotated[Words, tyro.conf.arg(metavar="PROBLEM ...")]
Pairs = Annotated[Many, tyro.conf.arg(metavar="KEY=VALUE ...")]


@dataclass(frozen=True)
class Runs:
    """Which runs are meant.

    Attributes:
        preset: of configs/presets/, or a YAML file.
        runs_dir: folder of the runs.
        data: data for a task instead of the preset's: language_modeling=DIR.
        set: a value of every run, optimization.max_update=500, or of a task's runs,
            TASK:KEY=VALUE; folders and results are named by it.
        config_dir: with tables/ and presets/.
    """

    preset: str = "paper"
    runs_dir: Path = Path("runs/tables")
    data: Pairs = ()
    set: Pairs = ()
    config_dir: Path = CONFIGS


@dataclass(frozen=True)
class Running(Runs):
    """How they run.

    Attributes:
        seeds: of the runs.
        gpus: of each run; 0: the CPU; None: the preset's.
        jobs: runs at once; None: as many as fit.
        cluster: local: processes of this machine; slurm: its jobs; debug: this process.
        slurm: options of sbatch: partition=gpu, time=MINUTES.
        prepare: make missing data.
        dry_run: print what would be run, and check it.
        interval: seconds between lines of progress.
    """

    seeds: tuple[int, ...] = (1,)
    gpus: int | None = None
    jobs: int | None = None
    cluster: Literal["local", "slurm", "debug"] = "local"
    slurm: Pairs = ()
    prepare: bool = False
    dry_run: bool = False
    interval: float = 30

    def check(self) -> None:
        """Raise ValueError for a number that no run can have."""
        if not self.seeds:
            raise ValueError("--seeds needs a number")
        for name, numbers, low in (
            ("seeds", self.seeds, 0),
            ("gpus", [self.gpus or 0], 0),
            ("jobs", [1 if self.jobs is None else self.jobs], 1),
        ):
            if min(numbers) < low or max(numbers) > MOST_SEED:
                raise ValueError(f"--{name} {numbers}; allowed: from {low}")


RUNS, RUNNING = Runs(), Running()
FINE_TUNING = Running(preset="finetune", runs_dir=Path("runs/finetune"))


def pairs(option: str, given: tuple[Words, ...]) -> Iterator[tuple[str, str]]:
    """KEY=VALUE of an option."""
    for word in chain.from_iterable(given):
        key, _, value = word.partition("=")
        if not (key and value):
            raise ValueError(f"{option} {word!r}: write it as KEY=VALUE")
        yield key, value


def settings(option: str, given: tuple[Words, ...]) -> Iterator[tuple[str, Any]]:
    """KEY=VALUE, the value in OmegaConf's YAML, in which 1e-3 is a number."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    for key, value in pairs(option, given):
        try:
            read: Any = OmegaConf.to_container(OmegaConf.create(f"value: {value}"))
        except (OmegaConfBaseException, YAMLError) as error:
            why = " ".join(f"{option} {key}={value}: {error}".split())
            raise ValueError(why) from error
        yield key, read["value"]
