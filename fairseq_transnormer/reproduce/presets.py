"""Presets: the size of every run of a table, as data."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..update_layout import lay_out
from .errors import ReproduceError
from .yaml_files import checked_mapping, named_file, read_mapping

PRESET_KEYS = {
    "description",
    "gpus_per_run",
    "tasks",
    "scaled",
    "overrides",
    "prepare",
    "prepare_automatically",
}
TASK_KEYS = {
    "data",
    "sequences_per_update",
    "sequences_per_device",
    "width",
    "overrides",
}


@dataclass(frozen=True)
class TaskPreset:
    """What a preset says of one fairseq task.

    Attributes:
        data: folder of binarised text, relative to the repository.
        sequences_per_update: of all devices and accumulated batches together.
        sequences_per_device: at most, at once.
        width: factor of the ``scaled`` fields.
        overrides: key -> value.
    """

    data: str
    sequences_per_update: int
    sequences_per_device: int
    width: float = 1.0
    overrides: dict[str, Any] = field(default_factory=dict)

    def batches(self, devices: int) -> tuple[int, int]:
        """Sequences at once on each device, and batches that are accumulated.

        Raises:
            ReproduceError: the devices do not divide the update.
        """
        try:
            return lay_out(
                self.sequences_per_update, devices, most=self.sequences_per_device
            )
        except ValueError as error:
            raise ReproduceError(f"--gpus-per-run {devices}: {error}") from error


@dataclass(frozen=True)
class Preset:
    """The conditions that all rows have in common."""

    name: str
    description: str
    gpus_per_run: int
    tasks: dict[str, TaskPreset]
    scaled: list[str]
    overrides: dict[str, Any]
    prepare: list[list[str]]
    prepare_automatically: bool

    def task(self, name: str) -> TaskPreset:
        """What the preset says of fairseq's task ``name``."""
        if name not in self.tasks:
            raise ReproduceError(
                f"preset {self.name} says nothing of the task {name!r}; it has: "
                f"{', '.join(self.tasks)}"
            )
        return self.tasks[name]

    def scale(self, model: dict[str, Any], task: str) -> None:
        """Multiply the widths in a model's configuration, rounding down, 1 at least."""
        width = self.task(task).width
        for name in self.scaled if width != 1 else ():
            if name in model:
                model[name] = max(1, int(model[name] * width))


def load_preset(configs: Path, name: str) -> Preset:
    """Read a preset's file.

    Raises:
        ReproduceError: the name is unknown or the file is not as it should be.
    """
    path = named_file(configs / "presets", name, "preset")
    content = read_mapping(path, PRESET_KEYS, {"tasks"})
    needed = {"data", "sequences_per_update", "sequences_per_device"}
    tasks = {
        task: TaskPreset(**checked_mapping(f"{path}: {task}", each, TASK_KEYS, needed))
        for task, each in content["tasks"].items()
    }
    return Preset(
        name=path.stem,
        description=content.get("description", ""),
        gpus_per_run=content.get("gpus_per_run", 1),
        tasks=tasks,
        scaled=content.get("scaled") or [],
        overrides=content.get("overrides") or {},
        prepare=content.get("prepare") or [],
        prepare_automatically=content.get("prepare_automatically", False),
    )
