"""Presets: the size of every run of a table, as data."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    "scaled",
    "most_devices",
    "overrides",
    "prepare",
}


@dataclass(frozen=True)
class TaskPreset:
    """What a preset says of one fairseq task, or of tables that name their own entry.

    Attributes:
        data: folder of binarised text, relative to the repository.
        sequences_per_update: of all devices and accumulated batches together.
        sequences_per_device: at most, at once.
        width: factor of the ``scaled`` fields.
        scaled: these fields, instead of the preset's.
        most_devices: of one run, however many GPUs it is given.
        overrides: key -> value.
        prepare: commands that make the data, instead of the preset's.
    """

    data: str
    sequences_per_update: int
    sequences_per_device: int
    width: float = 1.0
    scaled: list[str] | None = None
    most_devices: int | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    prepare: list[list[str]] = field(default_factory=list)

    def devices(self, gpus: int) -> int:
        """Processes of a run that is given ``gpus``; 0 are the CPU."""
        return max(1, min(gpus, self.most_devices or gpus))

    def batches(self, devices: int) -> tuple[int, int]:
        """Sequences at once on each device, and batches that are accumulated.

        Raises:
            ReproduceError: the devices do not divide the update.
        """
        share, rest = divmod(self.sequences_per_update, devices)
        if rest or not share:
            raise ReproduceError(
                f"--gpus-per-run {devices} does not divide an update's "
                f"{self.sequences_per_update} sequences"
            )
        batch = min(self.sequences_per_device, share)
        while share % batch:
            batch -= 1
        return batch, share // batch


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
        of_task = self.task(task)
        scaled = self.scaled if of_task.scaled is None else of_task.scaled
        for name in scaled if of_task.width != 1 else ():
            if name in model:
                model[name] = max(1, int(model[name] * of_task.width))


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
