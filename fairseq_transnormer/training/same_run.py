"""Whether a checkpoint is of this very run: its model, its data and its settings.

Weights fit many models: T1 and T2 have the same ones by name and shape. A run that
resumes computes what it has computed, or does not begin; what only trains otherwise is
logged. A run that begins from another's checkpoint on purpose warns of what differs.
"""

import logging
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, NamedTuple

from fairseq.file_io import PathManager
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from ..checkpoints.files import LAST, another_architecture, architecture
from ..checkpoints.identity import (
    check_dictionary,
    check_training_data,
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
# groups, and names in them, of which the learning rate of each update is made
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
    """Settings of a model that differ.

    Args:
        before, now: the group "model" of two configurations of one architecture.
            Settings that one of them lacks, of another version, are passed over.

    Returns:
        those that change what the model computes, and those that do not. Of an
        architecture of another package all count as the latter, since nothing tells
        them apart.
    """
    dataclass = MODEL_DATACLASS_REGISTRY.get(architecture(now))
    types = (each.get("attention_types", "") for each in (before, now))
    unused = unused_options(*types)
    computing, training = [], []
    for each in fields(dataclass) if dataclass else ():
        name = each.name
        if name not in before or name not in now or name in unused:
            continue
        if _differ(name, before[name], now[name]):
            change = Change(f"model.{name}", before[name], now[name])
            # fields of other packages have no such mark
            training_only = each.metadata.get(TRAINING_ONLY, True)
            (training if training_only else computing).append(change)
    return computing, training


def training_changes(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[Change]:
    """Settings of training that differ; each once, however many groups have it.

    Args:
        before, now: two configurations of fairseq, as plain values.
    """
    seen = set()
    for group, names in TRAINING.items():
        old, new = plain(before.get(group)), plain(now.get(group))
        for name in sorted({*old} & {*new} & {*(names or new)} - {"data"}):
            key = (name, repr(old[name]), repr(new[name]))
            if key not in seen and _differ(name, old[name], new[name]):
                seen.add(key)
                yield Change(f"{group}.{name}", old[name], new[name])


def check_checkpoint(trainer, filename: str, resets_optimizer: bool) -> bool:
    """Look at a checkpoint that a trainer is about to load.

    Args:
        trainer: ours.
        filename: of the checkpoint, local or where fairseq's PathManager finds it.
        resets_optimizer: the run takes nothing of it but weights.

    Returns:
        whether the run begins a moving average with these weights, which have none.

    Raises:
        ValueError: it is missing and not the one of a first start; it is of another
            architecture, of a model that computes something else, or of another
            dictionary or other training data, and of this very run.
    """
    save_dir, suffix = trainer.cfg.checkpoint.save_dir, trainer.checkpoint_suffix
    own = os.path.join(save_dir, LAST.replace(".pt", f"{suffix}.pt"))
    resumes = os.path.abspath(filename) == os.path.abspath(own)
    if not PathManager.isfile(filename):
        if resumes:  # the first start
            return False
        raise ValueError(
            f"{filename}: no such checkpoint; without one, the run resumes from {own} "
            "if that is there"
        )
    # the loader compares the sums
    local = PathManager.get_local_path(filename)
    state = read_checkpoint(local, mmap=True, compare_sums=False)
    dictionary = task_dictionary(trainer.task)
    if dictionary is not None:
        check_dictionary(state, dictionary, filename)
    if resumes:
        data = trainer.cfg.task.data
        check_training_data(state, trainer.training_data, filename, data)
    before, now = plain(state.get("cfg")), plain(trainer.cfg)
    if before:  # fairseq before 1.0 had none
        _compare(filename, before, now, resumes, resets_optimizer)
    if resumes and not suffix and not trainer.is_fsdp:  # shards are not the model
        _check_heads(filename, state.get("model") or {}, trainer.get_model())
    begins_average = trainer.cfg.ema.store_ema and not (
        (state.get("extra_state") or {}).get("ema")
    )
    if begins_average and not resets_optimizer:
        raise ValueError(
            f"{filename} has no moving average (ema.store_ema) to resume; allowed: "
            "ema.store_ema=false, or another save_dir and finetune_from_model, which "
            "begins one with these weights"
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
            f"{'; '.join(map(str, computing))}. Allowed here: the values before; on "
            f"purpose: another --save-dir, with --finetune-from-model {filename}"
        )
    for change in computing:
        logger.warning("%s is of another model: %s", filename, change)
    if resets_optimizer:
        return
    _check_optimizer(filename, before, now)
    for change in (*training, *training_changes(before, now)):
        if change.name.startswith(SCHEDULE):
            logger.warning("resuming with another schedule: %s", change)
        else:
            logger.info("resuming with other settings: %s", change)


def _check_optimizer(filename: str, before: dict, now: dict) -> None:
    """fairseq does so in single precision alone, by names of its classes."""
    old, new = (plain(each.get("optimizer")).get("_name") for each in (before, now))
    if None in (old, new) or old == new or {old, new} <= ONE_OPTIMIZER:
        return
    raise ValueError(
        f"{filename} has the state of optimizer._name={old}, and optimizer._name={new} "
        f"computes with another one; allowed: {old}, or --reset-optimizer with another "
        "--save-dir"
    )


def _check_heads(filename: str, weights: Mapping[str, Any], model) -> None:
    """fairseq drops a head of another size with a warning, and begins a random one."""
    own = model.state_dict()
    there, here = (
        {(head_of(name), x.shape) for name, x in each.items() if HEADS in name}
        for each in (weights, own)
    )
    if here - there:
        names = sorted({name for name, _ in there}) or "none"
        raise ValueError(
            f"{filename} has the classification heads {names}, and this run's "
            f"{sorted({name for name, _ in here - there})} would begin anew; allowed: "
            "the same, with as many classes, or another --save-dir, with "
            f"--finetune-from-model {filename}"
        )


def plain(settings: Any) -> dict[str, Any]:
    """A configuration, or a group of one, as plain values; empty if it is none."""
    if OmegaConf.is_config(settings):
        settings = OmegaConf.to_container(settings, resolve=True, enum_to_str=True)
    if isinstance(settings, Namespace):
        settings = vars(settings)
    return dict(settings) if isinstance(settings, Mapping) else {}


def _differ(name: str, before: Any, now: Any) -> bool:
    before, now = (
        each.value if isinstance(each, Enum) else each for each in (before, now)
    )
    if name == "attention_types":
        try:
            return parse_attention_types(before) != parse_attention_types(now)
        except ValueError:
            pass
    if isinstance(before, str) and isinstance(now, str):  # (0.9, 0.98), (0.9,0.98)
        return before.replace(" ", "") != now.replace(" ", "")
    if isinstance(before, (list, tuple)) and isinstance(now, (list, tuple)):
        return list(before) != list(now)
    return before != now
