"""Refuse settings that silently lead to wrong figures or folders."""

import re
from collections.abc import Iterator

import torch

from ..devices import check_torch_build

# metrics of a validation for which smaller is better, and larger
LEAST = ("loss", "nll_loss", "ppl")
MOST = ("accuracy", "f1", "macro_f1", "mcc", "pearson", "spearman", "correlation")


def check_settings(cfg) -> None:
    """Raise ValueError if fairseq would not train as the configuration says.

    The message has the setting, its value and the allowed values.
    """
    for problem in _problems(cfg):
        raise ValueError(problem)
    if torch.cuda.is_available() and not cfg.common.cpu:
        check_torch_build(torch.device("cuda", 0))


def _problems(cfg) -> Iterator[str]:
    common, dataset, saving = cfg.common, cfg.dataset, cfg.checkpoint
    if min(cfg.optimization.lr, default=0) <= 0:
        yield f"optimization.lr={cfg.optimization.lr}; allowed: rates above 0"
    sizes = {name: dataset[name] for name in ("batch_size", "max_tokens")}
    if all(size is None for size in sizes.values()):
        yield "dataset.batch_size and dataset.max_tokens are not set; allowed: either"
    intervals = {"checkpoint.save_interval": saving.save_interval}
    intervals["dataset.validate_interval"] = dataset.validate_interval
    intervals["common.log_interval"] = common.log_interval
    intervals["optimization.update_freq"] = min(cfg.optimization.update_freq, default=1)
    intervals |= {f"dataset.{name}": size for name, size in sizes.items()}
    for name, value in intervals.items():
        if value is not None and value < 1:
            yield f"{name}={value}; allowed: 1, 2, ..."
    for name in ("tpu", "quantization_config_path"):
        if common[name]:
            yield f"common.{name}={common[name]}: not supported by this package"
    if common.model_parallel_size > 1:
        yield f"common.model_parallel_size={common.model_parallel_size}; allowed: 1"
    yield from _of_precision(common)
    limits = ("max_update", "max_epoch", "stop_time_hours")
    limits = {f"optimization.{name}": cfg.optimization[name] for name in limits}
    limits["dataset.max_valid_steps"] = dataset.max_valid_steps or 0
    for name, value in limits.items():
        if value < 0:
            yield f"{name}={value}; allowed: 0 or more"
    if not (torch.cuda.is_available() or common.cpu):
        yield (
            "common.cpu=false, and torch finds no GPU on this machine; allowed here: "
            "common.cpu=true (--cpu)"
        )
    if saving.write_checkpoints_asynchronously:
        # a checkpoint gets its name when it is completely on the disk
        yield "checkpoint.write_checkpoints_asynchronously=true; allowed: false"
    grows = saving.maximize_best_checkpoint_metric
    metric = saving.best_checkpoint_metric
    # of a part of a mixture: accuracy_16
    if re.sub(r"_\d+$", "", metric) in (LEAST if grows else MOST):
        yield (
            f"checkpoint.maximize_best_checkpoint_metric={grows} keeps the worst by "
            f"best_checkpoint_metric={metric}; allowed: {not grows}"
        )


def _of_precision(common) -> Iterator[str]:
    """Settings that train in another precision than they say."""
    chosen = [name for name in ("fp16", "bf16", "amp") if common[name]]
    if len(chosen) > 1:
        yield f"common.{' and common.'.join(chosen)} are true; allowed: one of them"
    for name in ("fp16", "bf16"):
        if common[f"memory_efficient_{name}"] and not common[name]:
            yield f"common.memory_efficient_{name}=true; allowed: with {name}=true"
    if common.amp and common.cpu:
        yield "common.amp=true trains in fp32 on a CPU; allowed: common.bf16=true"
