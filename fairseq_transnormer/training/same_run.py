"""Check that a checkpoint belongs to this run: its model, its data and its settings.

T1 and T2 have weights of the same names and shapes. A resumed run must compute the same
function, or it does not start. Changed settings of the training are logged.
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
from .workers import of_all_workers

logger = logging.getLogger(__name__)

# by group, the settings that affect learning: those named, or all. If fairseq copies a
# setting to several groups, the first group counts
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
# settings that decide the learning rate of each update
SCHEDULE = ("optimizer.", "lr_scheduler.", "optimization.lr")


class Change(NamedTuple):
    """A setting with different values in the checkpoint and in the run."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name}={self.now!r}, before {self.before!r}"


def model_changes(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[list[Change], list[Change]]:
    """Settings of a model that differ, among those that both configurations have.

    Args:
        before, now: the group "model" of two configurations of one architecture.

    Returns:
        settings that change what the model computes, and others. For an architecture of
        another package all settings count as the first kind.
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
    """Settings of training that differ, each once, even if several groups have it.

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


def check_workers(cfg, data: Mapping[str, Any]) -> None:
    """Compare all workers' settings and fingerprints of data; machines have their own.

    Raises:
        ValueError: (on all workers) they differ; the message has the first difference.
    """
    # older tasks and models of fairseq have a Namespace of all options, also of paths
    groups = {name: cfg[name] for name in cfg if OmegaConf.is_config(cfg[name])}
    settings = {name: plain(group) for name, group in groups.items()}
    (first, its_data), *others = of_all_workers((settings, dict(data)))
    for rank, (theirs, their_data) in enumerate(others, 1):
        models = first.get("model", {}), theirs.get("model", {})
        changes = _changes("model", *models, {"_name"})
        changes += sum(model_changes(*models), []) + training_changes(first, theirs)
        changes += _changes("data", its_data, their_data, {*its_data})
        if changes:
            name, one, other = changes[0]
            raise ValueError(
                f"worker {rank} has {name}={str(other)[:200]}, worker 0 has "
                f"{str(one)[:200]}; allowed: the same settings and data on all machines"
            )


def check_checkpoint(
    trainer, filename: str, resets_optimizer: bool, resumes: bool = False
) -> bool:
    """Check a checkpoint that a trainer is about to load.

    Args:
        trainer: ours.
        filename: of the checkpoint, local or readable by fairseq's PathManager.
        resets_optimizer: the run loads only the weights.
        resumes: the run resumes it, as it always does its last one.

    Returns:
        whether the run begins a moving average with these weights, if they have none.

    Raises:
        ValueError: the checkpoint is missing (allowed at a first start), has another
            dictionary, or is of this run with another model, other training data or
            a moving average that this run would drop.
    """
    save_dir, suffix = trainer.cfg.checkpoint.save_dir, trainer.checkpoint_suffix
    own = os.path.join(save_dir, LAST.replace(".pt", f"{suffix}.pt"))
    resumes |= os.path.abspath(filename) == os.path.abspath(own)
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
    if before:  # checkpoints of fairseq before 1.0 have none
        _compare(filename, before, now, resumes, resets_optimizer)
    if resumes and not suffix and not trainer.is_fsdp:  # shards are not the model
        _check_heads(filename, state.get("model") or {}, trainer.get_model())
    average = said.get("ema")
    if average and resumes and not trainer.cfg.ema.store_ema:
        raise ValueError(
            f"{filename} has a moving average, which would be lost; allowed: "
            "ema.store_ema=true, or another --save-dir, with --restore-file"
        )
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
            f"{'; '.join(map(str, computing))}; allowed: the checkpoint's values, or "
            f"another --save-dir, with --finetune-from-model {filename}"
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
    schedule = plain(now.get("lr_scheduler")).get("_name")
    for change in (*training, *training_changes(before, now)):
        if change.name == "optimization.lr" and schedule == "reduce_lr_on_plateau":
            logger.warning("%s resumes its rate, not %s", schedule, change)
        elif change.name.startswith(SCHEDULE):
            logger.warning("resuming with another schedule: %s", change)
        else:
            logger.info("resuming with other settings: %s", change)


def _check_heads(filename: str, weights: Mapping[str, Any], model) -> None:
    """Refuse a head of another size; fairseq replaces it by a random one, and warns."""
    there, here = (
        {(head_of(name), x.shape) for name, x in each.items() if HEADS in name}
        for each in (weights, model.state_dict())
    )
    if here - there:
        kept, new = (sorted({name for name, _ in x}) for x in (there, here - there))
        raise ValueError(
            f"{filename} has the classification heads {kept}; {new} would start from "
            "random weights; allowed: the same heads with as many classes, or another "
            f"--save-dir, with --finetune-from-model {filename}"
        )


def plain(settings: Any) -> dict[str, Any]:
    """A configuration or one of its groups as plain values; empty for other objects."""
    if OmegaConf.is_config(settings):
        settings = OmegaConf.to_container(settings, resolve=True, enum_to_str=True)
    if isinstance(settings, Namespace):
        settings = vars(settings)
    return dict(settings) if isinstance(settings, Mapping) else {}


def _spelled_alike(name: str, value: Any) -> Any:
    """A value in one spelling, such as (0.9,0.98) for (0.9, 0.98)."""
    value = value.value if isinstance(value, Enum) else value
    if name == "attention_types":
        with suppress(ValueError):
            return parse_attention_types(value)
    if isinstance(value, str):
        return value.replace(" ", "")
    return list(value) if isinstance(value, tuple) else value
