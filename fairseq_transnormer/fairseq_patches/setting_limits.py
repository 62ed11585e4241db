"""Invalid settings of fairseq are refused at the start, by their names.

fairseq knows types, but few bounds: a negative learning rate climbs, a batch size of 0
makes one batch of the whole split. What this package configures itself carries its
bounds in its dataclasses (modules/options.py); the numbers of fairseq have them here.
"""

import ast
import math
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from fairseq.logging import metrics
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.tasks.masked_lm import MaskedLMConfig
from omegaconf import DictConfig, ListConfig, OmegaConf

from ..devices import check_torch_build
from ..modules.options import check_number, checked
from ..training.update_layout import WORKED_OUT

COUNT = {"at_least": 1}
NOT_NEGATIVE = {"at_least": 0}
POSITIVE = {"above": 0}
# fairseq's -1 stands for: none, or all
OR_MINUS_ONE = {"at_least": -1}
SHARE = {"at_least": 0, "at_most": 1}
BELOW_ONE = {"at_least": 0, "below": 1}

# "group.field" -> bounds of its number, or of each number of a list
LIMITS = {
    "common.log_interval": COUNT,
    "common.seed": {"at_least": 0, "at_most": 2**32 - 1},
    "common.fp16_init_scale": POSITIVE,
    "common.fp16_scale_window": COUNT,
    "common.fp16_scale_tolerance": BELOW_ONE,
    "common.min_loss_scale": POSITIVE,
    "common.threshold_loss_scale": POSITIVE,
    "common.amp_init_scale": POSITIVE,
    "common.amp_scale_window": COUNT,
    "common.amp_batch_retries": NOT_NEGATIVE,
    "common.empty_cache_freq": NOT_NEGATIVE,
    "common.model_parallel_size": COUNT,
    "distributed_training.distributed_world_size": COUNT,
    "distributed_training.bucket_cap_mb": COUNT,
    "dataset.num_workers": NOT_NEGATIVE,
    "dataset.max_tokens": COUNT,
    "dataset.batch_size": COUNT,
    "dataset.max_tokens_valid": COUNT,
    "dataset.batch_size_valid": COUNT,
    "dataset.required_batch_size_multiple": COUNT,
    "dataset.required_seq_len_multiple": COUNT,
    "dataset.data_buffer_size": NOT_NEGATIVE,
    "dataset.validate_interval": COUNT,
    "dataset.validate_interval_updates": NOT_NEGATIVE,
    "dataset.validate_after_updates": NOT_NEGATIVE,
    "dataset.max_valid_steps": COUNT,
    "dataset.curriculum": NOT_NEGATIVE,
    "dataset.num_shards": COUNT,
    "dataset.shard_id": NOT_NEGATIVE,
    "optimization.max_epoch": NOT_NEGATIVE,
    "optimization.max_update": NOT_NEGATIVE,
    "optimization.stop_time_hours": NOT_NEGATIVE,
    "optimization.clip_norm": NOT_NEGATIVE,
    "optimization.update_freq": COUNT,
    "optimization.lr": NOT_NEGATIVE,
    "checkpoint.save_interval": COUNT,
    "checkpoint.save_interval_updates": NOT_NEGATIVE,
    "checkpoint.keep_interval_updates": OR_MINUS_ONE,
    "checkpoint.keep_interval_updates_pattern": OR_MINUS_ONE,
    "checkpoint.keep_last_epochs": OR_MINUS_ONE,
    "checkpoint.keep_best_checkpoints": OR_MINUS_ONE,
    "checkpoint.patience": OR_MINUS_ONE,
    "checkpoint.checkpoint_shard_count": COUNT,
    "bmuf.block_lr": POSITIVE,
    "bmuf.block_momentum": BELOW_ONE,
    "bmuf.global_sync_iter": COUNT,
    "bmuf.warmup_iterations": NOT_NEGATIVE,
    "ema.ema_decay": SHARE,
    "ema.ema_start_update": NOT_NEGATIVE,
    "ema.ema_update_freq": COUNT,
    "optimizer.lr": NOT_NEGATIVE,
    "optimizer.weight_decay": NOT_NEGATIVE,
    "optimizer.momentum": BELOW_ONE,
    "optimizer.adam_betas": {**BELOW_ONE, "numbers": 2},
    "optimizer.adam_eps": POSITIVE,
    "lr_scheduler.lr": NOT_NEGATIVE,
    "lr_scheduler.warmup_updates": NOT_NEGATIVE,
    "lr_scheduler.warmup_init_lr": OR_MINUS_ONE,
    "lr_scheduler.end_learning_rate": NOT_NEGATIVE,
    "lr_scheduler.power": POSITIVE,
    "lr_scheduler.min_lr": NOT_NEGATIVE,
    "lr_scheduler.max_lr": POSITIVE,
    "lr_scheduler.t_mult": POSITIVE,
    "lr_scheduler.lr_shrink": POSITIVE,
    "lr_scheduler.lr_threshold": NOT_NEGATIVE,
    "lr_scheduler.lr_patience": NOT_NEGATIVE,
    "lr_scheduler.lr_deacy_period": COUNT,  # fairseq's spelling
    "lr_scheduler.lr_decay": POSITIVE,
    "lr_scheduler.warmup_steps": NOT_NEGATIVE,
    "lr_scheduler.hold_steps": NOT_NEGATIVE,
    "lr_scheduler.decay_steps": NOT_NEGATIVE,
    "lr_scheduler.init_lr_scale": NOT_NEGATIVE,
    "lr_scheduler.final_lr_scale": NOT_NEGATIVE,
    "criterion.label_smoothing": BELOW_ONE,
    "task.tokens_per_sample": COUNT,
    "task.max_target_positions": COUNT,
    "task.max_positions": COUNT,
    "task.mask_prob": SHARE,
    "task.leave_unmasked_prob": SHARE,
    "task.random_token_prob": SHARE,
    "task.mask_multiple_length": COUNT,
    "task.mask_stdev": NOT_NEGATIVE,
    "eval_lm.context_window": NOT_NEGATIVE,
}
# the same, where a component has its own
LIMITS_OF = {
    ("lr_scheduler", "inverse_sqrt"): {"warmup_updates": COUNT},  # it divides by them
    ("task", "masked_lm"): {
        "tokens_per_sample": {"at_least": 2},  # <s> is one
        "mask_prob": {"above": 0, "below": 1},
    },
}
# what a validation of this package's criterions and fairseq's has, by which is better
BEST_IS_LEAST = {"loss", "nll_loss", "ppl"}
BEST_IS_MOST = {"accuracy", "f1", "macro_f1", "acc_and_f1", "mcc"} | {
    *("pearson", "spearman", "correlation", "pearson_and_spearman"),
}
# 1 at most where a block's context is the one before it
ONE_READER = (
    "dataset.num_workers",
    "dataset.num_shards",
    "distributed_training.distributed_world_size",
)
# whose numbers are looked at; each is finite. Values of "model" are the models' matter
GROUPS = (
    *("common", "distributed_training", "dataset", "optimization", "checkpoint"),
    *("bmuf", "ema", "task", "criterion", "optimizer", "lr_scheduler", "eval_lm"),
)


def check_settings(cfg: DictConfig) -> None:
    """Hold the numbers of a configuration to their bounds.

    Args:
        cfg: fairseq's whole configuration.

    Raises:
        ValueError: a number is out of bounds, infinite or NaN; "group.field", its value
            and what is allowed are named.
    """
    for group in GROUPS:
        if group in cfg and cfg[group] is not None:
            check_group(group, cfg[group])
    if "dataset" in cfg and not cfg.dataset.train_subset:
        raise ValueError("dataset.train_subset=''; allowed: the name of a split")
    if "checkpoint" in cfg and cfg.checkpoint is not None:
        _check_saving(cfg.checkpoint)
        if "dataset" in cfg and not cfg.dataset.disable_validation:
            _check_which_is_best(cfg.checkpoint)
        if "optimization" in cfg and "dataset" in cfg:
            _check_something_is_saved(cfg)
    if "eval_lm" in cfg and cfg.get("task") is not None:
        _check_context(cfg)


def _check_context(cfg: DictConfig) -> None:
    # fairseq-eval-lm cuts shorter blocks by as much, and tells of these
    window = cfg.eval_lm.context_window
    length = as_mapping(cfg.task).get("tokens_per_sample")
    if isinstance(length, int) and window >= length:
        raise ValueError(
            f"eval_lm.context_window={window}; allowed: less than "
            f"task.tokens_per_sample={length}"
        )
    # fairseq takes a context from what the same process has read before
    for name in ONE_READER:
        number = OmegaConf.select(cfg, name)
        if window > 0 and number > 1:
            raise ValueError(
                f"{name}={number}; allowed with eval_lm.context_window={window}: 1, "
                "since each process takes the block that it read last for the context"
            )


def _check_saving(checkpoint: DictConfig) -> None:
    if Path(checkpoint.save_dir).is_file():
        raise ValueError(
            f"checkpoint.save_dir={checkpoint.save_dir}: a file; allowed: a folder, "
            "there or new"
        )
    pattern = checkpoint.keep_interval_updates_pattern
    if checkpoint.keep_interval_updates > 0 and pattern == 0:  # fairseq divides by it
        raise ValueError(
            "checkpoint.keep_interval_updates_pattern=0; allowed: 1, 2, ... or -1 for "
            "no pattern"
        )
    if checkpoint.write_checkpoints_asynchronously and find_spec("iopath") is None:
        raise ValueError(
            "checkpoint.write_checkpoints_asynchronously=true: iopath is not "
            "installed, and fairseq would end without training, with exit code 0; "
            "allowed: false, or pip install iopath"
        )


def _check_something_is_saved(cfg: DictConfig) -> None:
    saving, dataset = cfg.checkpoint, cfg.dataset
    updates = cfg.optimization.max_update or math.inf
    epochs = cfg.optimization.max_epoch or math.inf
    is_validated = not dataset.disable_validation
    if not (
        saving.no_save
        or not saving.no_last_checkpoints
        or (not saving.no_epoch_checkpoints and saving.save_interval <= epochs)
        or 0 < saving.save_interval_updates <= updates
        or (is_validated and dataset.validate_after_updates <= updates)
    ):
        raise ValueError(
            "checkpoint.no_last_checkpoints=true: no checkpoint would be left; allowed "
            "with it: epoch checkpoints, a save_interval_updates up to max_update, or "
            "validation"
        )


def _check_which_is_best(checkpoint: DictConfig) -> None:
    # fairseq keeps the worst one as checkpoint_best.pt, and --patience ends a good run
    if checkpoint.no_save and checkpoint.patience <= 0:
        return
    metric = checkpoint.best_checkpoint_metric
    maximize = checkpoint.maximize_best_checkpoint_metric
    kind = re.sub(r"_\d+$", "", metric)  # accuracy_64: of a part of the data
    if kind in (BEST_IS_LEAST if maximize else BEST_IS_MOST):
        raise ValueError(
            f"checkpoint.maximize_best_checkpoint_metric={str(maximize).lower()} would "
            "keep the worst checkpoint as the best by checkpoint.best_checkpoint_metric"
            f"={metric}; allowed with it: {str(not maximize).lower()} (--maximize-best-"
            "checkpoint-metric is for what grows as a model gets better)"
        )


def check_group(group: str, settings: Any) -> None:
    """``check_settings`` of one group.

    Args:
        group: its name, such as "task".
        settings: a DictConfig, a Namespace (of components that fairseq configures by
            argparse) or a dataclass.
    """
    settings = as_mapping(settings)
    component = settings.get("_name")
    own = LIMITS_OF.get((group, component), {})
    for field, value in settings.items():
        name = f"{group}.{field}"
        if name == "optimization.update_freq" and value == WORKED_OUT:
            continue
        bounds = own.get(field, LIMITS.get(name, {}))
        for number in _numbers(name, value, bounds):
            check_number(name, number, bounds)
    if (group, component) == ("task", "masked_lm"):
        # Hydra's files leave fields out, and an interpolation is None
        kept, drawn = (
            getattr(MaskedLMConfig, name)
            if settings.get(name) is None
            else settings[name]
            for name in ("leave_unmasked_prob", "random_token_prob")
        )
        if kept + drawn > 1:
            raise ValueError(
                f"task.leave_unmasked_prob={kept} and task.random_token_prob={drawn}; "
                "allowed: a sum of at most 1"
            )
    for each in _fields(group, component):
        if each.name in settings:
            try:
                checked(each, settings[each.name])
            except ValueError as error:
                raise ValueError(f"{group}.{error}") from None


def as_mapping(settings: Any) -> Mapping[str, Any]:
    """A group of a configuration as plain Python values by name."""
    if isinstance(settings, Namespace):
        return vars(settings)
    if not OmegaConf.is_config(settings):
        settings = OmegaConf.structured(settings)
    return {
        name: _plain(settings._get_node(name))
        for name in settings
        if not OmegaConf.is_missing(settings, name)
    }


def _plain(node: Any) -> Any:
    # an interpolation of a group that stands alone leads nowhere; where it leads to is
    # looked at
    if node is None or node._is_interpolation():
        return None
    if isinstance(node, (DictConfig, ListConfig)):
        return OmegaConf.to_container(node, enum_to_str=True)
    return node._value()


def _numbers(name: str, value: Any, bounds: Mapping[str, Any]) -> Iterator[Any]:
    if bounds and isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise ValueError(f"{name}={value!r}; allowed: numbers") from None
    several = isinstance(value, (list, tuple))
    count, wanted = len(value) if several else 1, bounds.get("numbers")
    if (bounds and not count) or wanted not in (None, count):
        raise ValueError(f"{name}={value}; allowed: {wanted or 1} numbers")
    for each in value if several else (value,):
        if isinstance(each, (int, float)) and not isinstance(each, bool):
            yield each


def _fields(group: str, component: str | None) -> tuple:
    """Of a component that this package registered, with the bounds they carry."""
    if group == "task":
        registry = TASK_DATACLASS_REGISTRY
    else:
        registry = REGISTRIES.get(group, {}).get("dataclass_registry", {})
    dataclass = registry.get(component)
    package = __name__.partition(".")[0]
    if dataclass is None or not dataclass.__module__.startswith(f"{package}."):
        return ()
    return fields(dataclass)


def check_settings_and_call(call_main, cfg, main, **arguments):
    """distributed/utils.py, call_main: where most commands begin."""
    check_settings(cfg)
    if torch.cuda.is_available() and not cfg.common.cpu:
        try:
            check_torch_build(torch.device("cuda", 0))
        except ValueError as error:
            raise SystemExit(f"fairseq_transnormer: {error}") from error
    return call_main(cfg, main, **arguments)


def check_task_and_set_up(setup_task, cfg, **arguments):
    """tasks/__init__.py, setup_task: every command, and what reads a checkpoint."""
    if getattr(cfg, "_name", None):
        check_group("task", cfg)
    return setup_task(cfg, **arguments)


def check_batch_limits(
    get_batch_iterator, task, dataset, max_tokens=None, max_sentences=None, **others
):
    """tasks/fairseq_task.py: with 0 or less the whole split becomes one batch."""
    for name, value in (("max_tokens", max_tokens), ("batch_size", max_sentences)):
        if value is not None:
            check_number(f"dataset.{name}", value, COUNT)
    return get_batch_iterator(task, dataset, max_tokens, max_sentences, **others)


def check_left_out(
    filter_indices, task, indices, dataset, max_positions=None, *arguments, **keywords
):
    """tasks/fairseq_task.py, filter_indices_by_size: what is longer than a model takes.

    With ``skip_invalid_size_inputs_valid_test``, and in fairseq-eval-lm, it is left out
    with a warning: where blocks are cut too long, all but the last one are, and the
    perplexity of nothing is 1.00.
    """
    kept = filter_indices(task, indices, dataset, max_positions, *arguments, **keywords)
    left_out = len(indices) - len(kept)
    # fairseq's older tasks, as language_modeling, have args
    settings = getattr(task, "cfg", None) or getattr(task, "args", None)
    length = getattr(settings, "tokens_per_sample", None)
    several = isinstance(max_positions, (tuple, list))
    limits = max_positions if several else [max_positions]
    limits = [each for each in limits if isinstance(each, int)]
    cut_too_long = (
        length is not None
        and bool(limits)
        and length > min(limits)
        and getattr(settings, "sample_break_mode", None) != "eos"
    )
    if left_out and (cut_too_long or not len(kept)):
        setting = "" if length is None else f"task.tokens_per_sample={length}: "
        raise ValueError(
            f"{setting}{left_out} of {len(indices)} samples are longer than the model "
            f"takes (max_positions={max_positions}) and would be left out; allowed: at "
            f"most {min(limits, default=max_positions)}"
        )
    return kept


def check_best_metric(trainer) -> None:
    """Refuse a ``--best-checkpoint-metric`` that no validation has.

    fairseq ends with a KeyError after the first validation, before anything is saved.
    Every criterion has a loss; what else this one has, a batch tells.
    """
    cfg, task = trainer.cfg, trainer.task
    metric = cfg.checkpoint.best_checkpoint_metric
    if (
        metric == "loss"
        or cfg.dataset.disable_validation
        or hasattr(task, "post_validate")  # may add others to a whole validation
    ):
        return
    dummy_batch = trainer._dummy_batch
    subset, *_ = cfg.dataset.valid_subset.split(",")
    batch = trainer.get_valid_iterator(subset).first_batch
    trainer._dummy_batch = dummy_batch  # which the iterator has replaced
    if batch == "DUMMY":  # of data that a loader's processes alone can read
        return
    trainer.begin_valid_epoch(1)
    with metrics.aggregate(new_root=True) as validation:
        trainer.valid_step(batch)
    found = validation.get_smoothed_values()
    if metric not in found:
        raise ValueError(
            f"checkpoint.best_checkpoint_metric={metric!r}: no validation has it; "
            f"allowed here: {', '.join(sorted(found))}"
        )


def check_epoch(cfg, epochs) -> None:
    """Refuse epochs that have no update: --skip-remainder-batch and a large batch.

    Args:
        cfg: fairseq's whole configuration.
        epochs: its iterator, which training begins with.
    """
    optimization = cfg.optimization
    if not getattr(optimization, "skip_remainder_batch", False):
        return
    # each entry is that of an epoch, the last one that of all later ones
    frequencies = optimization.update_freq[: optimization.max_epoch or None]
    batches, update_freq = len(epochs), max(frequencies)
    if batches < update_freq:
        raise ValueError(
            "optimization.skip_remainder_batch=true: an epoch has "
            f"{batches} batches a worker, and an update takes {update_freq}; allowed: "
            f"false, or a smaller dataset.batch_size ({cfg.dataset.batch_size})"
        )
