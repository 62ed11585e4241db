"""Presets: the size of every run of a table, as data."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ...data.typed_mappings import (
    ABOVE_0,
    ANY,
    BOOLEAN,
    MAPPING,
    POSITIVE,
    TEXT,
    Kind,
    list_of,
    mapping_of,
)
from ...modules.registry import unused_options
from ...modules.systems import CONFIGS
from ...training.update_layout import lay_out
from ..errors import ReproduceError
from ..yaml_files import (
    OVERRIDES,
    checked_mapping,
    named_file,
    named_mappings,
    read_mapping,
)

_COMMANDS = list_of(list_of(TEXT))
SWEEP = mapping_of(
    Kind("a list, not empty", lambda value: isinstance(value, list) and len(value) > 0)
)
PRESET_KINDS = {
    "description": TEXT,
    "paper_sizes": BOOLEAN,
    "gpus_per_run": POSITIVE,
    "tasks": MAPPING,
    "scaled": list_of(TEXT),
    "overrides": OVERRIDES,
    "prepare": _COMMANDS,
    "prepare_automatically": BOOLEAN,
    "not_in_all": list_of(TEXT),
    "columns": mapping_of(list_of(TEXT)),
    "sweep_values": POSITIVE,
    "sweeps": mapping_of(SWEEP),
    "speed": mapping_of(ANY),
}
TASK_KINDS = {
    "data": TEXT,
    "sequences_per_update": POSITIVE,
    "sequences_per_device": POSITIVE,
    "width": ABOVE_0,
    "scaled": list_of(TEXT),
    "factors": mapping_of(ABOVE_0),
    "most_devices": POSITIVE,
    "overrides": OVERRIDES,
    "prepare": _COMMANDS,
    "prepare_alone": BOOLEAN,
}
# fields of models that can be multiplied
SIZES = {
    each.name
    for config in CONFIGS.values()
    for each in fields(config)
    if type(each.default) is int
}


@dataclass(frozen=True)
class TaskPreset:
    """What a preset says of one fairseq task, or of tables that name their own entry.

    Attributes:
        data: folder of binarised text, relative to the repository.
        sequences_per_update: of all devices and accumulated batches together; None
            leaves it to the configuration.
        sequences_per_device: at most, at once.
        width: factor of the ``scaled`` fields.
        scaled: these fields, instead of the preset's.
        factors: other fields of models -> the factor of each.
        most_devices: of one run, however many GPUs it is given.
        overrides: key -> value.
        prepare: commands that make the data, after those of the preset.
        prepare_alone: whether those of the preset are not needed for it.
    """

    data: str
    sequences_per_device: int
    sequences_per_update: int | None = None
    width: float = 1.0
    scaled: list[str] | None = None
    factors: dict[str, float] = field(default_factory=dict)
    most_devices: int | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    prepare: list[list[str]] = field(default_factory=list)
    prepare_alone: bool = False

    def devices(self, gpus: int) -> int:
        """Processes of a run that is given ``gpus``; 0 are the CPU."""
        return max(1, min(gpus, self.most_devices or gpus))

    def batches(self, devices: int, configured: int) -> tuple[int, int]:
        """Sequences at once on each device, and batches that are accumulated.

        Args:
            devices: of the run.
            configured: sequences of an update, where the preset leaves them to the
                configuration.

        Raises:
            ReproduceError: the devices do not divide the update.
        """
        try:
            return lay_out(
                self.sequences_per_update or configured,
                devices,
                most=self.sequences_per_device,
            )
        except ValueError as error:
            raise ReproduceError(f"--gpus-per-run {devices}: {error}") from error


@dataclass(frozen=True)
class Preset:
    """The conditions that all rows have in common.

    Attributes:
        name, description: of the file, and what it says of itself.
        paper_sizes: whether models, data and budget are the paper's, so that reports
            subtract its figures.
        gpus_per_run: that a run takes.
        tasks: by fairseq's name.
        scaled: fields of models that a task's width multiplies.
        overrides: key -> value, of every run.
        prepare: commands that make the data.
        prepare_automatically: whether the user need not ask for that.
        not_in_all: tables that "all" does not stand for; their data are others.
        columns: table -> those that are run where none are asked for.
        sweeps: table -> key -> values that are tried in it, beside its own sweep.
        sweep_values: how many values of each sweep are tried; None tries all.
        speed: options of ``benchmarks lra_speed``, without the dashes.
    """

    name: str
    description: str
    gpus_per_run: int
    tasks: dict[str, TaskPreset]
    scaled: list[str]
    overrides: dict[str, Any]
    prepare: list[list[str]]
    prepare_automatically: bool
    paper_sizes: bool = False
    not_in_all: list[str] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=dict)
    sweeps: dict[str, dict[str, list]] = field(default_factory=dict)
    sweep_values: int | None = None
    speed: dict[str, Any] = field(default_factory=dict)

    def task(self, name: str) -> TaskPreset:
        """What the preset says of fairseq's task ``name``."""
        if name not in self.tasks:
            raise ReproduceError(
                f"preset {self.name} says nothing of the task {name!r}; it has: "
                f"{', '.join(self.tasks)}"
            )
        return self.tasks[name]

    def scale(
        self, model: dict[str, Any], task: str, given: Collection[str] = ()
    ) -> None:
        """Multiply the sizes in a model's configuration, rounding down, 1 at least.

        Those that none of its attentions reads stay.

        Args:
            model: its configuration, which is changed.
            task: of its training.
            given: keys of the configuration that were set by hand; they stay.
        """
        of_task = self.task(task)
        scaled = self.scaled if of_task.scaled is None else of_task.scaled
        factors = dict.fromkeys(scaled, of_task.width) | of_task.factors
        for name in unused_options(model.get("attention_types", "")):
            factors.pop(name, None)
        for name, factor in factors.items():
            if factor != 1 and name in model and f"model.{name}" not in given:
                model[name] = max(1, int(model[name] * factor))


def load_preset(configs: Path, name: str) -> Preset:
    """Read a preset's file.

    Raises:
        ReproduceError: the name is unknown or the file is not as it should be.
    """
    path = named_file(configs / "presets", name, "preset")
    content = read_mapping(path, PRESET_KINDS, ["tasks"])
    needed = ("data", "sequences_per_device")
    tasks = {
        task: TaskPreset(**checked_mapping(f"{path}: {task}", each, TASK_KINDS, needed))
        for task, each in named_mappings(f"{path}: tasks", content["tasks"]).items()
    }
    _check_sizes(f"{path}: scaled", content.get("scaled") or [])
    for task, each in tasks.items():
        _check_sizes(f"{path}: {task}: scaled", each.scaled or [])
        _check_sizes(f"{path}: {task}: factors", each.factors)
    return Preset(
        name=path.stem,
        description=content.get("description", ""),
        gpus_per_run=content.get("gpus_per_run", 1),
        tasks=tasks,
        scaled=content.get("scaled") or [],
        overrides=content.get("overrides") or {},
        prepare=content.get("prepare") or [],
        prepare_automatically=content.get("prepare_automatically", False),
        paper_sizes=content.get("paper_sizes", False),
        not_in_all=content.get("not_in_all") or [],
        columns=content.get("columns") or {},
        sweeps=content.get("sweeps") or {},
        sweep_values=content.get("sweep_values"),
        speed=content.get("speed") or {},
    )


def _check_sizes(place: str, names: Iterable[str]) -> None:
    for name in names:
        if name not in SIZES:
            raise ReproduceError(
                f"{place}: {name!r}; allowed: sizes of models, such as block_size, "
                "embed_dim, ffn_dim"
            )
