"""Whether a checkpoint is of this very run: its model, its data and its settings.

T1 and T2 have the same weights by name and shape. A run that resumes computes what it
has computed, or does not begin; what only trains otherwise is logged.
"""

import logging
import os
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from enum import Enum
from typing import Any, NamedTuple

from fairseq.file_io import PathManager
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from ..checkpoints.files import LAST, another_architecture, architecture
from ..checkpoints.identity import (
    OF_TRAINING,
    check_dictionary,
    compare,
    said_by,
    task_dictionary,
)
from ..checkpoints.safe_loading import read_checkpoint
from ..modules.options import TRAINING_ONLY
from ..modules.registry import parse_attention_types, unused_options
from ..plugin.loading import HEADS, head_of

logger = logging.getLogger(__name__)

# by group, the settings that bear on what is learned: those named, or all. Of a setting
# that fairseq copies, the first group counts
TRAINING: dict[str, tuple[str, ...]] = {
    "common": ("seed", "fp16", "bf16", "amp"),
    "distributed_training": ("distributed_world_size",),
    "dataset": ("batch_size", "max_tokens", "train_subset", "valid_subset"),
    "checkpoint": ("best_checkpoint_metric", "patience"),
    **dict.fromkeys(("optimization", "optimizer", "lr_scheduler", "criterion"), ()),
    **dict.fromkeys(("ema", "task"), ()),
}
# optimizers that resume from each other's state
ONE_OPTIMIZER = {"adam", "fused_adam"}
# what the learning rate of each update is made of
SCHEDULE = ("optimizer.", "lr_scheduler.", "optimization.lr")


class Change(NamedTuple):
    """A setting of a checkpoint that the run has another value of."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name}={self.now!r}, before {self.before!r}"


def model_changes(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[list[Change], list[Change]]:
    """Settings of a model that differ, of those that both have.

    Args:
        before, now: the group "model" of two configurations of one architecture.

    Returns:
        those that change what the model computes, and those that do not: of another
        package's architecture all, since nothing tells them apart.
    """
    dataclass = MODEL_DATACLASS_REGISTRY.get(architecture(now))
    known = fields(dataclass) if dataclass else ()
    # fields of other packages have no such mark
    training = {x.name for x in known if x.metadata.get(TRAINING_ONLY, True)}
    types = (each.get("attention_types", "") for each in (before, now))
    names = {each.name for each in known} - unused_options(*types)
    of_both = (names - training, names & training)
    computing, training_only = (_changes("model", before, now, x) for x in of_both)
    return computing, training_only


def training_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Settings of training that differ; each once, however many groups have it.

    Args:
        before, now: two configurations of fairseq, as plain values.
    """
    found: dict[tuple, Change] = {}
    for group, names in TRAINING.items():
        old, new = plain(before.get(group)), plain(now.get(group))
        for change in _changes(group, old, new, {*(names or new)} - {"data"}):
            name = change.name.removeprefix(f"{group}.")
            found.setdefault((name, repr(change.before), repr(change.now)), change)
    return list(found.values())


def _changes(group: str, before: Mapping, now: Mapping, names: set) -> list[Change]:
    return [
        Change(f"{group}.{name}", before[name], now[name])
        for name in sorted(names & before.keys() & now.keys())
        if _spelled_alike(name, before[name]) != _spelled_alike(name, now[name])
    ]


def check_checkpoint(trainer, filename: str, resets_optimizer: bool) -> bool:
    """Look at a checkpoint that a trainer is about to load.

    Args:
        trainer: ours.
        filename: of the checkpoint, local or where fairseq's PathManager finds it.
        resets_optimizer: the run takes nothing of it but weights.

    Returns:
        whether the run begins a moving average with these weights, which have none.

    Raises:
        ValueError: it is missing and not the one of a first start, of another
            dictionary, or of this run with another model or other training data.
    """
    save_dir, suffix = trainer.cfg.checkpoint.save_dir, trainer.checkpoint_suffix
    own = os.path.join(save_dir, LAST.replace(".pt", f"{suffix}.pt"))
    resumes = os.path.abspath(filename) == os.path.abspath(own)
    if not PathManager.isfile(filename):
        if resumes:  # the first start
            return False
        raise ValueError(f"{filename}: no such checkpoint; a run resumes from {own}")
    local = PathManager.get_local_path(filename)
    state = read_checkpoint(local, mmap=True, compare_sums=False)  # the loader does
    said, dictionary = said_by(state), task_dictionary(trainer.task)
    if dictionary is not None:
        check_dictionary(said, dictionary, filename)
    if resumes:
        here = {key: trainer.training_data.get(key) for key in OF_TRAINING}
        allowed = (
            f"the training data that it began with (not {trainer.cfg.task.data}); "
            f"on purpose: another --save-dir, with --restore-file {filename}"
        )
        compare(said, here, filename, allowed)
    before, now = plain(state.get("cfg")), plain(trainer.cfg)
    if before:  # fairseq before 1.0 had none
        _compare(filename, before, now, resumes, resets_optimizer)
    if resumes and not suffix and not trainer.is_fsdp:  # shards are not the model
        _check_heads(filename, state.get("model") or {}, trainer.get_model())
    average = said.get("ema")
    begins_average = trainer.cfg.ema.store_ema and not average
    if begins_average and not resets_optimizer:
        raise ValueError(
            f"{filename} has no moving average to resume; allowed: ema.store_ema=false"
            ", or another --save-dir, with --finetune-from-model, which begins one"
        )
    return begins_average


def _compare(
    filename: str, before: dict, now: dict, resumes: bool, resets_optimizer: bool
) -> None:
    old, new = plain(before.get("model")), plain(now.get("model"))
    if architecture(old) != architecture(new):
        names = (architecture(old), architecture(new))
        if resumes:
            raise ValueError(another_architecture(filename, *names))
        logger.warning("%s is of %s; its weights begin a run of %s", filename, *names)
        return
    computing, training = model_changes(old, new)
    if computing and resumes:
        raise ValueError(
            f"{filename} is of a model that computes something else: "
            f"{'; '.join(map(str, computing))}; allowed: the values before, or another "
            f"--save-dir, with --finetune-from-model {filename}"
        )
    for change in computing:
        logger.warning("%s is of another model: %s", filename, change)
    if resets_optimizer:
        return
    # fairseq compares optimizers in single precision alone, by names of its classes
    was, is_ = (plain(each.get("optimizer")).get("_name") for each in (before, now))
    if None not in (was, is_) and was != is_ and not {was, is_} <= ONE_OPTIMIZER:
        raise ValueError(
            f"{filename} has the state of optimizer._name={was}, not {is_}; allowed: "
            f"{was}, or --reset-optimizer with another --save-dir"
        )
    for change in (*training, *training_changes(before, now)):
        if change.name.startswith(SCHEDULE):
            logger.warning("resuming with another schedule: %s", change)
        else:
            logger.info("resuming with other settings: %s", change)


def _check_heads(filename: str, weights: Mapping[str, Any], model) -> None:
    """fairseq drops a head of another size with a warning, and begins a random one."""
    there, here = (
        {(head_of(name), x.shape) for name, x in each.items() if HEADS in name}
        for each in (weights, model.state_dict())
    )
    if here - there:
        kept, new = (sorted({name for name, _ in x}) for x in (there, here - there))
        raise ValueError(
            f"{filename} has the classification heads {kept}, and {new} would begin "
            "anew; allowed: the same, with as many classes, or another --save-dir, "
            f"with --finetune-from-model {filename}"
        )


def plain(settings: Any) -> dict[str, Any]:
    """A configuration, or a group of one, as plain values; empty if it is none."""
    if OmegaConf.is_config(settings):
        settings = OmegaConf.to_container(settings, resolve=True, enum_to_str=True)
    if isinstance(settings, Namespace):
        settings = vars(settings)
    return dict(settings) if isinstance(settings, Mapping) else {}


def _spelled_alike(name: str, value: Any) -> Any:
    """A value, the same one for all its spellings: (0.9, 0.98) and (0.9,0.98)."""
    value = value.value if isinstance(value, Enum) else value
    if name == "attention_types":
        with suppress(ValueError):
            return parse_attention_types(value)
    if isinstance(value, str):
        return value.replace(" ", "")
    return list(value) if isinstance(value, tuple) else value
