"""How a row is run: each kind of job makes a plan of a cell.

A job is a class with the methods of ``Job``, registered here by name or named in a
table as MODULE:CLASS.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ...checkpoints.files import check_last_checkpoint
from ...installation import PACKAGE
from ...training.config import Configuration, compose, get
from ..commands import filled
from ..errors import ReproduceError
from ..registry import JOBS
from ..runs.plans import Plan, Step, starting_checkpoint
from ..runs.run_folder import CONFIGURATION, RunFolder
from .corpora import Corpus, Text
from .definitions import MODEL, Cell
from .presets import Preset
from .setting_checks import check_model, check_settings, check_updates

TRAINING = "fairseq_transnormer.training"
# primary configurations whose runs are called by the model alone
LANGUAGE_MODELS = ("alm", "blm")
# What may change when a run resumes elsewhere.
MACHINE_KEYS = (
    "common.cpu",
    "common.user_dir",
    "task.data",
    "dataset.num_workers",
    "distributed_training.",
)
# fairseq counts its way through the data by batches of a device.
LAYOUT_KEYS = ("dataset.batch_size", "dataset.batch_size_valid")
LAYOUT_KEYS += ("optimization.update_freq",)


@dataclass(frozen=True)
class Conditions:
    """What all rows have in common.

    Attributes:
        configs: the folder of configurations.
        root: what relative data folders are relative to.
        preset: sizes and budget.
        seed: of the run.
        gpus: that each run takes; 0 trains on the CPU.
        data: fairseq task -> folder, instead of the preset's.
        overrides: key, or TASK:KEY for the runs of one fairseq task, -> value; on top
            of the preset's.
    """

    configs: Path
    root: Path
    preset: Preset
    seed: int = 1
    gpus: int = 0
    data: dict[str, str] | None = None
    overrides: dict[str, Any] | None = None

    def of(self, seed: int) -> "Conditions":
        """The same with this seed."""
        return replace(self, seed=seed)

    def overrides_of(self, task: str) -> dict[str, Any]:
        """``overrides`` as far as they are for this fairseq task."""
        found = {}
        for key, value in (self.overrides or {}).items():
            of, _, name = key.rpartition(":")
            if of in ("", task):
                found[name] = value
        return found

    def set_by_hand(self, task: str) -> dict[str, Any]:
        """What a command changed for this fairseq task, for reports."""
        given = (self.data or {}).get(task)
        data = {} if given is None else {"task.data": Path(given).name}
        return self.overrides_of(task) | data

    def data_folder(self, task: str) -> Path:
        """Where the data of this fairseq task are."""
        given = (self.data or {}).get(task, self.preset.task(task).data)
        return (self.root / given).resolve()


class Job(Protocol):
    """What the runner asks of a kind of job.

    Attributes:
        most_devices: GPUs that a run can use; None for as many as there are.
    """

    most_devices: int | None

    def name(self, cell: Cell, conditions: Conditions) -> str:
        """Of the cell's run: cells of equal names share a run. Fast."""

    def data(self, cell: Cell, conditions: Conditions) -> Corpus:
        """The data that the run needs."""

    def needs(self, cell: Cell) -> list[Cell]:
        """Cells whose runs must be finished before this one's."""

    def plan(self, cell: Cell, conditions: Conditions) -> Plan:
        """Everything about the run; raises ReproduceError for a mistake in it."""


def job_of(cell: Cell) -> Job:
    """The job that runs this cell."""
    return JOBS.find(cell.job)()


def with_needs(cells: list[Cell]) -> list[Cell]:
    """One cell for each run: those of sweeps, and in front of each what it needs."""
    return [
        each
        for cell in cells
        for candidate in cell.candidates()
        for each in [*with_needs(job_of(candidate).needs(candidate)), candidate]
    ]


@JOBS.register("hydra_train")
class HydraTrain:
    """Training by a configuration, which validates on the test split, too."""

    most_devices = None

    def name(self, cell: Cell, conditions: Conditions) -> str:
        """The preset, the configuration, what is overridden in it, and the seed.

        Values that the configuration has in this preset anyway do not count, so that
        rows of several tables that are the same run have the same name.
        """
        files = {key: v for key, v in cell.overrides.items() if "." not in key}
        plain = compose(conditions.configs, cell.config, files)
        of_preset = self._preset_values(cell, conditions)
        changed = {
            key.removeprefix("model."): value
            for key, value in sorted(cell.overrides.items())
            if "." not in key or of_preset.get(key, get(plain, key)) != value
        }
        return run_name(conditions, [*named_configuration(cell.config, changed)])

    def data(self, cell: Cell, conditions: Conditions) -> Corpus:
        task = self._task(cell, conditions)
        return Text(conditions.data_folder(task), task)

    def needs(self, cell: Cell) -> list[Cell]:
        return []

    def plan(self, cell: Cell, conditions: Conditions) -> Plan:
        preset, task = conditions.preset, self._task(cell, conditions)
        corpus = self.data(cell, conditions)
        data = corpus.folder
        chosen = {key: v for key, v in cell.overrides.items() if "." not in key}
        plain = compose(conditions.configs, cell.config, chosen)
        common = _conditions(conditions, task, data, plain["dataset"]["batch_size"])
        given = {
            **self._preset_values(cell, conditions),
            **cell.overrides,
            **conditions.overrides_of(task),
        }
        fixed = common.keys() - set(LAYOUT_KEYS)
        check_settings(conditions.configs, cell.config, given, fixed)
        configuration = compose(conditions.configs, cell.config, {**common, **given})
        preset.scale(configuration["model"], task, conditions.overrides_of(task))
        check_model(configuration["model"])
        check_updates(configuration["optimization"]["max_update"])
        return Plan(
            name=self.name(cell, conditions),
            configuration=configuration,
            data=str(data),
            data_fingerprint=corpus.fingerprint(),
            seed=conditions.seed,
            updates=configuration["optimization"]["max_update"],
            steps=[Step("train", training_command()), *_steps_after(cell, data)],
            origin={
                "preset": preset.name,
                "configuration": cell.config,
                "overrides": cell.overrides,
                "further_overrides": conditions.set_by_hand(task),
                "changed_model": changed_model(configuration, plain),
            },
            machine_keys=MACHINE_KEYS,
            layout_keys=LAYOUT_KEYS,
            start=starting_checkpoint(configuration),
            chosen=(*cell.overrides, *conditions.overrides_of(task)),
        )

    def preset_overrides(self, preset: Preset) -> dict[str, Any]:
        """What the preset changes in all tasks."""
        return preset.overrides

    def _preset_values(self, cell: Cell, conditions: Conditions) -> dict[str, Any]:
        """Key -> value, as the preset changes the paper's."""
        of_task = conditions.preset.task(self._task(cell, conditions)).overrides
        return {**self.preset_overrides(conditions.preset), **of_task}

    def _task(self, cell: Cell, conditions: Conditions) -> str:
        """The entry of the preset's tasks that holds for the cell."""
        if cell.conditions is not None:
            return cell.conditions
        return compose(conditions.configs, cell.config, {})["task"]["_name"]


class HydraTrainWithoutText(HydraTrain):
    """Training on other data, with settings of its own for them."""

    def preset_overrides(self, preset: Preset) -> dict[str, Any]:
        """What does not concern models of text."""
        return {
            key: value
            for key, value in preset.overrides.items()
            if key.startswith("common.")
        }


def changed_model(configuration: Configuration, plain: Configuration) -> dict[str, Any]:
    """The values of a run's model that are others than its configuration file's."""
    before = plain["model"]
    return {
        key: value
        for key, value in configuration["model"].items()
        if key not in before or before[key] != value
    }


def _conditions(
    conditions: Conditions, task: str, data: Path, configured_batch: int
) -> dict[str, Any]:
    """The overrides that all rows have in common."""
    of_task = conditions.preset.task(task)
    devices = of_task.devices(conditions.gpus)
    batch, update_freq = of_task.batches(devices, configured_batch)
    return {
        "common.user_dir": str(PACKAGE),
        "common.seed": conditions.seed,
        "common.cpu": conditions.gpus == 0,
        "distributed_training.distributed_world_size": devices,
        "dataset.batch_size": batch,
        # figures on test are those of the best checkpoint on valid
        "dataset.valid_subset": "valid,test",
        "optimization.update_freq": [update_freq],
        "task.data": str(data),
        "checkpoint.save_dir": "checkpoints",
    }


def named_configuration(config: str, changed: dict[str, Any]) -> Iterator[str]:
    """The parts of a run's name: a language model's configuration is its model."""
    if config in LANGUAGE_MODELS:
        config = changed.pop(MODEL, config)
    yield config
    yield from (f"{key}={value}" for key, value in changed.items())


def run_name(conditions: Conditions, parts: list[str]) -> str:
    """The name of a run by what it is made of."""
    return f"{conditions.preset.name}/{folder_name(parts)}/seed{conditions.seed}"


def folder_name(parts: list[str]) -> str:
    """The parts as a name fit for a folder."""
    name = "+".join(parts).replace(",", "-").replace("*", "x")
    return re.sub(r"[^\w.=+-]", "_", name)


def check_checkpoints(folder: RunFolder, plan: Plan) -> None:
    """Raise ReproduceError if the run would resume from another model's checkpoint."""
    arch = get(plan.configuration, "model._name")
    if not folder.checkpoints.is_dir() or arch is None or folder.is_finished():
        return
    try:
        check_last_checkpoint(arch, folder.checkpoints)
    except ValueError as error:
        raise ReproduceError(str(error)) from error


def training_command() -> list[str]:
    """Trains in a run's folder, by its configuration."""
    return [sys.executable, "-m", TRAINING, CONFIGURATION]


def _steps_after(cell: Cell, data: Path) -> list[Step]:
    values = {
        "folder": ".",
        "checkpoint": "checkpoints/checkpoint_best.pt",
        "data": str(data),
    }
    return [Step(name, filled(command, values)) for name, command in cell.after.items()]
