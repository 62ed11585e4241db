"""What a training's settings must be for it to begin, and the batches of an update.

fairseq's own options are fairseq's to check; these few lead to figures or folders that
nobody asked for, in silence.
"""

import logging
import math
import os
from collections.abc import Iterator

import torch
from omegaconf import OmegaConf

from ..devices import check_torch_build
from .update_layout import SEQUENCES, Layout, described, lay_out

logger = logging.getLogger(__name__)

# value of update_freq that stands for: whatever fills the update
WORKED_OUT = [0]
# in which OmegaConf would put another text in the place of ${...}
PATHS = ("checkpoint.save_dir", "checkpoint.restore_file", "task.data")
PATHS += ("checkpoint.finetune_from_model", "common.tensorboard_logdir")


def check_settings(cfg) -> None:
    """Refuse what would train something else than was asked for.

    Args:
        cfg: fairseq's whole configuration.

    Raises:
        ValueError: the setting, its value and what is allowed are named.
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
    for name, size in sizes.items():
        if size is not None and size < 1:
            yield f"dataset.{name}={size}; allowed: 1, 2, ..."
    for name in PATHS:
        group, key = name.split(".")
        node = cfg[group]._get_node(key) if OmegaConf.is_config(cfg[group]) else None
        if node is not None and node._is_interpolation():
            yield f"{name}={node._value()}; allowed: a path without ${{...}}"
    if common.tpu or common.model_parallel_size > 1:
        yield "common.tpu and common.model_parallel_size > 1 are not supported"
    if not (torch.cuda.is_available() or common.cpu):
        yield (
            "common.cpu=false, and torch finds no GPU on this machine; allowed here: "
            "common.cpu=true (--cpu), which trains on the CPU"
        )
    if saving.write_checkpoints_asynchronously:
        yield (
            "checkpoint.write_checkpoints_asynchronously=true; allowed: false, since a "
            "checkpoint takes its name when all of it is on the disk"
        )
    if _leaves_nothing(cfg):
        yield (
            "checkpoint.no_last_checkpoints=true: no checkpoint would be left; allowed "
            "with it: epoch checkpoints, a save_interval_updates up to max_update, or "
            "validation"
        )


def _leaves_nothing(cfg) -> bool:
    saving, dataset = cfg.checkpoint, cfg.dataset
    updates = cfg.optimization.max_update or math.inf
    epochs = cfg.optimization.max_epoch or math.inf
    is_validated = not dataset.disable_validation
    return not (
        saving.no_save
        or not saving.no_last_checkpoints
        or (not saving.no_epoch_checkpoints and saving.save_interval <= epochs)
        or 0 < saving.save_interval_updates <= updates
        or (is_validated and dataset.validate_after_updates <= updates)
    )


def set_update_layout(cfg, workers: int) -> None:
    """Work ``update_freq`` out where it is [0], and look that an update is as declared.

    One worker for which nothing is declared accumulates nothing.

    Args:
        cfg: fairseq's configuration; its batch_size and update_freq are set.
        workers: that really train, which Slurm or torchrun may have decided.

    Raises:
        ValueError: the sequences of an update cannot be, or are not, those that
            SEQUENCES_PER_UPDATE declares.
    """
    dataset, optimization = cfg.dataset, cfg.optimization
    wanted = _declared()
    work_out = list(optimization.update_freq) == WORKED_OUT
    if wanted is None and work_out:
        if workers > 1:
            raise ValueError(
                f"optimization.update_freq={WORKED_OUT}: {SEQUENCES} is not set; "
                "allowed: the sequences of an update there, or the batches to "
                "accumulate here"
            )
        optimization.update_freq, work_out = [1], False
    if dataset.batch_size is None or dataset.max_tokens is not None:
        if wanted is not None:
            raise ValueError(
                f"dataset.max_tokens={dataset.max_tokens}: an update has no fixed "
                f"number of sequences; allowed with {SEQUENCES}={wanted}: "
                "dataset.batch_size alone"
            )
        return
    if work_out:
        layout = lay_out(wanted, workers, most=dataset.batch_size)
        dataset.batch_size = layout.batch
        optimization.update_freq = [layout.update_freq]
    for update_freq in optimization.update_freq:
        layout = Layout(dataset.batch_size, update_freq)
        sequences = workers * layout.batch * layout.update_freq
        told = described(sequences, workers, layout)
        if wanted not in (None, sequences):
            raise ValueError(f"{told}; {_instead(wanted, workers, layout.batch)}")
        logger.info(told)


def _declared() -> int | None:
    text = os.environ.get(SEQUENCES, "")
    if text and (not text.isdecimal() or int(text) == 0):
        raise ValueError(f"{SEQUENCES}={text}; allowed: 1, 2, ... or nothing")
    return int(text) if text else None


def _instead(wanted: int, workers: int, batch: int) -> str:
    try:
        update_freq = lay_out(wanted, workers, batch=batch).update_freq
        allowed = f"optimization.update_freq=[{update_freq}]"
    except ValueError as error:
        allowed = f"others ({error})"
    return (
        f"{SEQUENCES} is {wanted}; allowed: {allowed}, or an empty {SEQUENCES} for any "
        "number"
    )
