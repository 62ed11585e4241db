"""What a checkpoint was trained with, beside what the run that loads it is told.

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
from pathlib import Path
from typing import Any, NamedTuple

from fairseq.file_io import PathManager
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY, FairseqLRScheduler
from omegaconf import OmegaConf
from torch import Tensor

from ..checkpoints.files import LAST, another_architecture, architecture
from ..checkpoints.identity import (
    check_dictionary,
    check_training_data,
    task_dictionary,
)
from ..checkpoints.safe_loading import read_checkpoint
from ..modules.options import TRAINING_ONLY
from ..modules.registry import parse_attention_types, unused_options
from .loading import HEADS, head_of, training_data
from .workers import call_on_first_rank

logger = logging.getLogger(__name__)

# in which a setting counts where several groups have it; fairseq copies some
GROUPS = (
    *("common", "dataset", "optimization", "optimizer", "lr_scheduler", "criterion"),
    *("task", "ema", "bmuf", "checkpoint", "distributed_training"),
)
# groups of which some settings alone bear on what is learned
SETTINGS_OF = {
    "common": (
        *("seed", "fp16", "bf16", "amp", "memory_efficient_fp16"),
        *("memory_efficient_bf16", "fp16_init_scale", "fp16_scale_window"),
        *("fp16_scale_tolerance", "min_loss_scale", "threshold_loss_scale"),
        *("amp_init_scale", "amp_scale_window", "model_parallel_size"),
    ),
    "checkpoint": (
        *("best_checkpoint_metric", "maximize_best_checkpoint_metric", "patience"),
    ),
    "distributed_training": ("distributed_world_size", "ddp_backend"),
}
# of the other groups, those that do not
IGNORED = {
    *("num_workers", "data_buffer_size", "gen_subset", "num_shards", "shard_id"),
    *("ignore_unused_valid_subsets", "debug_param_names", "use_plasma_view"),
    *("plasma_path", "tpu"),
}
# optimizers that resume from each other's state
ONE_OPTIMIZER = {"adam", "fused_adam"}
# the settings by which fairseq chooses the class around the optimizer
HALF_PRECISION = ("fp16", "bf16", "amp")
MEMORY_EFFICIENT = ("memory_efficient_fp16", "memory_efficient_bf16")
NOT_FLAT = "fp16_no_flatten_grads"


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
    for group in GROUPS:
        old, new = plain(before.get(group)), plain(now.get(group))
        for name in SETTINGS_OF.get(group, new):
            if name in IGNORED or name not in old or name not in new:
                continue
            if not _differ(name, old[name], new[name]):
                continue
            change = Change(f"{group}.{name}", old[name], new[name])
            if (name, repr(change.before), repr(change.now)) not in seen:
                seen.add((name, repr(change.before), repr(change.now)))
                yield change


def check_and_load(
    load, trainer, filename, reset_optimizer=False, *arguments, **keywords
):
    """Around ``Trainer.load_checkpoint``: look at the checkpoint that is loaded.

    Raises:
        ValueError: it is missing and not the one of a first start; it is of another
            architecture, of a model that computes something else, or of another
            dictionary or other training data, and of this very run; its weights do not
            fit.
    """
    begins_average = call_on_first_rank(
        trainer, check_checkpoint, trainer, filename, reset_optimizer
    )
    if not begins_average:
        return load(trainer, filename, reset_optimizer, *arguments, **keywords)
    # fairseq would begin it with weights that it has put away by then
    trainer.cfg.ema.store_ema = False
    try:
        extra_state = load(trainer, filename, reset_optimizer, *arguments, **keywords)
    finally:
        trainer.cfg.ema.store_ema = True
    trainer._build_ema()
    return extra_state


def check_checkpoint(trainer, filename: str, resets_optimizer: bool) -> bool:
    """What ``check_and_load`` looks at, in one process.

    Args:
        trainer: fairseq's, about to load.
        filename: of the checkpoint, local or where fairseq's PathManager finds it.
        resets_optimizer: the run takes nothing of it but weights.

    Returns:
        whether the run begins a moving average with these weights, which have none.
    """
    save_dir, suffix = trainer.cfg.checkpoint.save_dir, trainer.checkpoint_suffix
    own = os.path.join(save_dir, LAST.replace(".pt", f"{suffix}.pt"))
    resumes = os.path.abspath(filename) == os.path.abspath(own)
    if not PathManager.isfile(filename):
        if resumes:  # the first start
            return False
        asked = trainer.cfg.checkpoint
        name = "continue_once" if filename == asked.continue_once else "restore_file"
        raise ValueError(
            f"checkpoint.{name}={filename}: no such file; allowed: a checkpoint "
            f"({_checkpoints_beside(filename)}), or nothing, which resumes from {own} "
            "if it is there"
        )
    local = PathManager.get_local_path(filename)
    # the loader compares the sums
    state = read_checkpoint(local, mmap=True, compare_sums=False)
    dictionary = task_dictionary(trainer.task)
    if dictionary is not None:
        check_dictionary(state, dictionary, filename)
    if resumes:
        check_training_data(
            state, training_data(trainer), filename, trainer.cfg.task.data
        )
    before, now = plain(state.get("cfg")), plain(trainer.cfg)
    if before:  # fairseq before 1.0 had none
        _compare(filename, before, now, resumes, resets_optimizer)
    if not resets_optimizer and not trainer.cfg.checkpoint.reset_lr_scheduler:
        _check_schedule(filename, state, now)
    extra = state.get("extra_state") or {}
    average = dict(extra.get("ema") or {})
    if trainer.cfg.ema.ema_fp32:  # is what a resumed average begins with
        average |= extra.get("ema_fp32_params") or {}
    # earlier versions lost LayerNorms of some averages; fairseq averages tensors alone
    weights = {name for name, x in state["model"].items() if isinstance(x, Tensor)}
    lost = sorted(weights - average.keys())
    begins_average = trainer.cfg.ema.store_ema and bool(lost)
    if begins_average and not resets_optimizer:
        of = ", ".join(lost) if average else "the weights"
        raise ValueError(
            f"{filename} has no moving average of {of} (ema.store_ema) to "
            "resume; allowed: ema.store_ema=false, or another save_dir and "
            "finetune_from_model, which begins one with these weights"
        )
    if not suffix and not trainer.is_fsdp:  # a shard's weights are not the model's
        _check_shapes(filename, state, trainer.get_model(), resumes)
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
    if not resets_optimizer:
        _check_optimizer(filename, before, now)
        _check_precision(filename, before, now)
        for change in (*training, *training_changes(before, now)):
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


def _check_precision(filename: str, before: dict, now: dict) -> None:
    """fairseq's own message names classes only, and their states differ in form."""
    old, new = (plain(each.get("common")) for each in (before, now))
    if _optimizer_class(old) == _optimizer_class(new):
        return
    changes = [
        str(Change(f"common.{name}", old.get(name), new.get(name)))
        for name in (*HALF_PRECISION, *MEMORY_EFFICIENT, NOT_FLAT)
        if bool(old.get(name)) != bool(new.get(name))
    ]
    raise ValueError(
        f"{filename} has the state of an optimizer of another precision: "
        f"{'; '.join(changes)}; allowed: the values before, or --reset-optimizer with "
        "another --save-dir"
    )


def _optimizer_class(common: Mapping[str, Any]) -> str:
    """trainer.py, _build_optimizer: one of its kinds."""
    if not any(common.get(name) for name in HALF_PRECISION):
        return "single precision"
    if any(common.get(name) for name in MEMORY_EFFICIENT):
        return "memory-efficient"
    if common.get("amp"):
        return "amp"
    # fp16_optimizer.py: with bf16 the float32 weights are never one tensor
    is_flat = not (common.get("bf16") or common.get(NOT_FLAT))
    return "half precision, flat" if is_flat else "half precision"


def _check_schedule(filename: str, state: Mapping[str, Any], now: dict) -> None:
    """fairseq looks for a best loss that "fixed" and "manual" do not keep.

    Of the class, not of the trainer's schedule: to make that one makes the optimizer
    and torch's DDP, in which all workers take part, of weights not loaded yet.
    """
    history = state.get("optimizer_history") or [{}]
    known = history[-1].get("lr_scheduler_state")
    old, new = (
        plain(plain(cfg).get("lr_scheduler")).get("_name")
        for cfg in (state.get("cfg"), now)
    )
    kind = LR_SCHEDULER_REGISTRY.get(new)
    asks = new == "reduce_lr_on_plateau" or (
        getattr(kind, "load_state_dict", None) is FairseqLRScheduler.load_state_dict
    )
    if asks and known is not None and "best" not in known:
        raise ValueError(
            f"{filename} has the state of lr_scheduler._name={old}, without the best "
            f"loss that lr_scheduler._name={new} resumes from; allowed: {old}, or "
            "--reset-lr-scheduler with another --save-dir"
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


def _check_shapes(
    filename: str, state: Mapping[str, Any], model, resumes: bool
) -> None:
    """fairseq says but that the architectures shall match, and replaces heads."""
    own, weights = model.state_dict(), state.get("model") or {}
    found = [
        f"{name} is {tuple(weight.shape)}, here {tuple(own[name].shape)}"
        for name, weight in weights.items()
        if name in own
        and (resumes or HEADS not in name)
        and getattr(weight, "shape", None) != own[name].shape
    ]
    there, here = (
        {head_of(name) for name in names if HEADS in name} for names in (weights, own)
    )
    if resumes and here - there:
        raise ValueError(
            f"{filename} has the classification heads {sorted(there) or 'none'}, and "
            f"this run {sorted(here)}, which would begin anew; allowed: the same, or "
            f"another --save-dir, with --finetune-from-model {filename}"
        )
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise ValueError(
            f"{filename}: its weights do not fit: {'; '.join(found[:3])}{more}; "
            "allowed: a checkpoint of a model of the same sizes and dictionary"
        )


def _checkpoints_beside(filename: str) -> str:
    folder = os.path.dirname(filename) or "."
    try:
        names = sorted(name for name in PathManager.ls(folder) if name.endswith(".pt"))
    except Exception:  # what a remote store raises is its own matter
        names = []
    if names:
        return f"in {folder}: {', '.join(names)}"
    return f"{folder} has none" if Path(folder).is_dir() else f"no folder {folder}"
