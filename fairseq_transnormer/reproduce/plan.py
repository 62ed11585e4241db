"""A cell as a run: its folder's name, its configuration, its data, what it needs."""

import functools
import itertools
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from ..installation import PACKAGE
from ..modules.registry import unused_options
from ..modules.systems import CONFIGS
from ..training.config import Configuration, compose, get
from ..training.update_layout import lay_out
from .data import Data, data_of
from .runs import CONFIGURATION, Run
from .schema import MODEL, Cell, Preset, TaskPreset, plain
from .settings import SEQUENCES, differences, settings_of

# primary configurations whose runs are called by the model alone
LANGUAGE_MODELS = ("alm", "blm")
SEED = "common.seed"
DEVICES = "distributed_training.distributed_world_size"
BATCH = "dataset.batch_size"  # as given: of an update, on however many devices
START = "checkpoint.finetune_from_model"
# what the runner gives to each run -> what decides it
DECIDED_BY = {
    "common.user_dir": "the package that runs it",
    SEED: "--seeds",
    "common.cpu": "--gpus",
    DEVICES: "--gpus",
    "optimization.update_freq": f"{BATCH} and --gpus",
    "dataset.valid_subset": "figures, which are of valid and test",
    "task._name": "a row's configuration",
    "task.data": "--data TASK=DIR",
    "model._name": "a row's configuration",
    "checkpoint.save_dir": "--runs-dir",
    START: "the row's pre-training",
    "checkpoint.restore_file": "the run's last checkpoint",
}
# a run that is resumed and reported has validations and checkpoints
NEVER = ("checkpoint.no_save", "checkpoint.no_last_checkpoints")
NEVER += ("dataset.disable_validation",)
# fields of models that presets can multiply
_FIELDS = itertools.chain(*map(fields, CONFIGS.values()))
SIZES = {each.name for each in _FIELDS if type(each.default) is int}


@dataclass(frozen=True)
class Conditions:
    """What all rows have in common."""

    configs: Path  # the folder of configurations
    root: Path  # where relative data folders begin
    preset: Preset
    seed: int = 1
    gpus: int = 0  # that each run takes; 0 trains on the CPU
    # fairseq task -> folder, instead of the preset's
    data: Mapping[str, str] = field(default_factory=dict)
    # key, or TASK:KEY for the runs of one fairseq task, -> value; after the preset's
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The preset, and what was changed: "small+optimization.max_update=500"."""
        given = sorted(self.overrides.items())
        changed = [f"{key.replace(':', '.')}={plain(value)}" for key, value in given]
        return folder_name([self.preset.name, *changed])

    def overrides_of(self, task: str) -> dict[str, Any]:
        """Those of ``overrides`` for this task; its own come last."""
        parts = [(*key.rpartition(":"), v) for key, v in self.overrides.items()]
        places = dict.fromkeys(("", task))
        return {key: v for p in places for of, _, key, v in parts if of == p}

    def folder_of(self, task: str) -> Path:
        """Where the data of this task are."""
        given = self.data.get(task, self.preset.task(task).data)
        return (self.root / given).resolve()


def folder_name(parts: Iterable[str]) -> str:
    """The parts as a name fit for a folder."""
    name = "+".join(parts).replace(",", "-").replace("*", "x")
    return re.sub(r"[^\w.=+-]", "_", name)


def name_of(conditions: Conditions, config: str, changed: Mapping[str, Any]) -> str:
    """The folder of a run: LABEL/CONFIGURATION+CHANGES/seedN.

    A language model's configuration is called by its model.
    """
    changed = dict(changed)
    if config in LANGUAGE_MODELS:
        config = changed.pop(MODEL, config)
    given = sorted(changed.items())
    parts = [f"{key.removeprefix('model.')}={plain(value)}" for key, value in given]
    return f"{conditions.label}/{folder_name([config, *parts])}/seed{conditions.seed}"


def fairseq_task(cell: Cell, conditions: Conditions) -> str:
    """The name of the task of a cell's configuration."""
    return compose(conditions.configs, cell.config, {})["task"]["_name"]


def task_of(cell: Cell, conditions: Conditions) -> str:
    """What presets call a cell's task: its table's conditions, or fairseq's name."""
    return cell.conditions or fairseq_task(cell, conditions)


def _usual(cell: Cell, conditions: Conditions) -> Configuration:
    """A cell's configuration with the files that it chooses, without its own values."""
    groups = {key: value for key, value in cell.overrides.items() if "." not in key}
    return compose(conditions.configs, cell.config, groups)


def preset_values(cell: Cell, conditions: Conditions) -> dict[str, Any]:
    """Key -> value, as the preset changes the paper's."""
    kind = fairseq_task(cell, conditions)
    of_task = conditions.preset.task(task_of(cell, conditions)).overrides
    of_all = conditions.preset.overrides
    if kind in ("long_range_arena", "associative_recall"):
        # other values are those of models of text
        of_all = {k: v for k, v in of_all.items() if k.startswith("common.")}
    return {**of_all, **of_task}


def train_name(cell: Cell, conditions: Conditions) -> str:
    """The name of a training.

    Values that the configuration has in this preset anyway do not count. So rows of
    several tables that are the same run have the same name.
    """
    usual, own = _usual(cell, conditions), cell.overrides
    task = conditions.preset.task(task_of(cell, conditions))
    of_preset = {BATCH: task.sequences_per_update or usual["dataset"]["batch_size"]}
    of_preset |= preset_values(cell, conditions)
    known = {key: of_preset.get(key, get(usual, key)) for key in own if "." in key}
    changed = {k: v for k, v in own.items() if k not in known or known[k] != v}
    return name_of(conditions, cell.config, changed)


def other_values(cell: Cell, conditions: Conditions, run: Configuration) -> list[str]:
    """A phrase for each of a training's own values that a run of its name has not.

    Names leave out what is usual, and configurations are edited.
    """
    task = task_of(cell, conditions)
    of_preset, by_hand = conditions.preset.task(task), conditions.overrides_of(task)
    own = {key: value for key, value in cell.overrides.items() if "." in key}
    there = {key: get(run, key) for key in own}
    scaled = {"attention_types": run["model"].get("attention_types", "")}
    scaled |= {key.removeprefix("model."): value for key, value in own.items()}
    scale(scaled, conditions.preset, of_preset, by_hand)
    own = {key: scaled[key.removeprefix("model.")] for key in own}
    if BATCH in own:
        there[BATCH] = settings_of(run)[SEQUENCES]
    return differences(there, own)


def train_data(cell: Cell, conditions: Conditions) -> Data:
    """The data of a training."""
    kind, task = fairseq_task(cell, conditions), task_of(cell, conditions)
    return data_of(conditions.folder_of(task), kind, task, cell.overrides)


def train_run(cell: Cell, conditions: Conditions) -> Run:
    """A training by a configuration, which validates on the test split, too."""
    data, gpus = train_data(cell, conditions), conditions.gpus
    by_hand = conditions.overrides_of(data.conditions)
    of_task = conditions.preset.task(data.conditions)
    usual = of_task.sequences_per_update or get(_usual(cell, conditions), BATCH)
    devices = max(1, min(gpus, of_task.most_devices or gpus))
    given = {**preset_values(cell, conditions), **cell.overrides, **by_hand}
    check_settings(given)
    fixed = batch_settings(of_task, devices, given.pop(BATCH, usual))
    fixed["dataset.valid_subset"] = "valid,test"
    overrides = {**fixed, **given, **common_settings(conditions, data, devices)}
    configuration = compose(conditions.configs, cell.config, overrides)
    scale(configuration["model"], conditions.preset, of_task, by_hand)
    return training(train_name(cell, conditions), configuration, data, "training")


def training(
    name: str, configuration: Configuration, data: Data, module: str, **given: Any
) -> Run:
    """A run that a module of this package trains; ValueError where it cannot."""
    updates = configuration["optimization"]["max_update"]
    if type(updates) is not int or updates < 1:
        raise ValueError(f"optimization.max_update must be 1, 2, ..., got {updates}")
    _check_model(json.dumps(configuration["model"], sort_keys=True))
    command = sys.executable, "-m", f"{PACKAGE.name}.{module}", CONFIGURATION
    seed = configuration["common"]["seed"]
    return Run(name, configuration, data, seed, updates, command, **given)


def common_settings(conditions: Conditions, data: Data, devices: int) -> dict[str, Any]:
    """What the runner sets in every training."""
    return {
        "common.user_dir": str(PACKAGE),
        SEED: conditions.seed,
        "common.log_format": "json",  # figures are read from the log
        "common.cpu": conditions.gpus == 0,
        DEVICES: devices,
        "task.data": str(data.folder),
        "checkpoint.save_dir": "checkpoints",
    }


def batch_settings(task: TaskPreset, devices: int, sequences: int) -> dict[str, Any]:
    """Sequences at once on each device, and batches that are accumulated.

    ``sequences`` are an update's. ValueError where the devices do not divide them.
    """
    if type(sequences) is not int:
        raise ValueError(f"{BATCH} must be 1, 2, ..., got {sequences}")
    try:
        layout = lay_out(sequences, devices, most=task.sequences_per_device)
    except ValueError as error:
        raise ValueError(f"--gpus {devices}: {error}") from error
    return {BATCH: layout.batch, "optimization.update_freq": [layout.update_freq]}


def scale(
    model: dict[str, Any], preset: Preset, task: TaskPreset, by_hand: Iterable[str]
) -> None:
    """Multiply the sizes in a model's configuration, rounding down, 1 at least.

    Those that none of its attentions reads stay, and those that were set by hand.
    """
    scaled = preset.scaled if task.scaled is None else task.scaled
    if task.width != 1 and not scaled:
        raise ValueError(f"{preset.name}: width {task.width} has no sizes in scaled")
    factors = dict.fromkeys(scaled, task.width) | task.factors
    if unknown := factors.keys() - SIZES:
        allowed = "sizes of models, as block_size, embed_dim, ffn_dim"
        raise ValueError(f"{preset.name}: {min(unknown)!r}; allowed: {allowed}")
    unread = unused_options(model.get("attention_types", ""))
    for name in factors.keys() & model.keys() - {*unread}:
        if factors[name] != 1 and f"model.{name}" not in by_hand:
            model[name] = max(1, int(model[name] * factors[name]))


def check_settings(given: Mapping[str, Any], fixed: Iterable[str] = DECIDED_BY) -> None:
    """Raise ValueError for a setting that the runner decides, or that leaves a run
    without figures."""
    for key, value in given.items():
        if key in fixed:
            decides = DECIDED_BY.get(key, "the data and the devices of the run")
            raise ValueError(f"{key}: the runner sets it, by {decides}")
        if key in NEVER and value:
            raise ValueError(
                f"{key} must be false, got {value}: figures are of the validations and "
                "checkpoints of a run"
            )


@functools.cache
def _check_model(model: str) -> None:
    """Raise ValueError if the model refuses a value; it says which."""
    from fairseq.data import Dictionary
    from fairseq.models import MODEL_REGISTRY
    from fairseq.tasks import FairseqTask

    class Task(FairseqTask):
        source_dictionary = target_dictionary = Dictionary()  # few: they decide nothing
        # of a classifier's task
        vocabulary_size, num_classes, num_sequences = len(target_dictionary), 2, 1

    configuration = OmegaConf.create(json.loads(model))
    with torch.random.fork_rng(devices=[]):
        MODEL_REGISTRY[configuration._name].build_model(configuration, Task(None))
