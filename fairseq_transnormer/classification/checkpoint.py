"""A fine-tuned checkpoint with its task and the folder of its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, tasks

from .. import plugin  # noqa: F401 (registers the models)
from ..checkpoints.identity import check_labels, check_units
from ..checkpoints.pretrained import PretrainedCheckpoint
from ..checkpoints.safe_loading import CheckpointError, error_line
from ..data.labelled_texts import SentenceData
from ..data.subword_files import find_subword_files
from .errors import ClassificationError

TASK = "sentence_prediction"


def load_fine_tuned(
    path: str | Path, data: str | Path | None = None
) -> tuple[Any, Any, SentenceData, int]:
    """Load a checkpoint, on the CPU.

    Args:
        path: the checkpoint file.
        data: folder of the problem; by default that of the fine-tuning.

    Returns:
        the model in evaluation, fairseq's task, the data, and the positive class.

    Raises:
        ClassificationError: a file is missing or not what it should be.
    """
    path = Path(path)
    try:
        checkpoint = PretrainedCheckpoint.read(path)
        if checkpoint.task != TASK:
            raise ClassificationError(
                f"{path}: a checkpoint of the task {checkpoint.task}, not fine-tuned; "
                "scripts/finetune_glue.sh does that"
            )
        found = SentenceData.read(data or checkpoint.data)
        if checkpoint.vocabulary != found.vocabulary:
            checkpoint.check_data(found)
    except ValueError as error:
        raise ClassificationError(str(error)) from error
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(
            str(path), {"data": str(found.folder)}
        )
        cfg = state["cfg"]
        _check_head(path, cfg, state["model"], found)
    except ClassificationError:
        raise
    # fairseq raises what a setting happens to lead to
    except Exception as error:
        raise ClassificationError(f"{path}: {error_line(error)}") from error
    try:
        check_labels(state, found.labels or None, found.target_scale, path)
        folders = [found.folder, found.folder / "input0", path.parent]
        units = find_subword_files(folders)
        check_units(checkpoint.units, units, found, found.folder, path)
    except ValueError as error:
        raise ClassificationError(f"{error} (--data; here: {found.folder})") from error
    try:
        task = tasks.setup_task(cfg.task)
    # fairseq raises what a file happens to lead to
    except Exception as error:
        raise ClassificationError(
            f"{found.folder}: its dictionaries cannot be read ({error_line(error)}); "
            "allowed: SYMBOL COUNT a line, in UTF-8, and each symbol once"
        ) from error
    try:
        (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], task=task, state=state
        )
    except CheckpointError as error:
        raise ClassificationError(f"{error} (--data; here: {found.folder})") from error
    # another criterion than sentence_prediction_metrics has none
    positive_class = getattr(cfg.criterion, "positive_class", None)
    return model.eval(), task, found, 1 if positive_class is None else positive_class


def _check_head(path: Path, cfg, weights: dict, data: SentenceData) -> None:
    name = cfg.task.classification_head_name
    weight: torch.Tensor | None = weights.get(
        f"classification_heads.{name}.out_proj.weight"
    )
    if weight is None:
        raise ClassificationError(f"{path}: no classification head {name!r} in it")
    if len(weight) != data.num_classes or cfg.task.num_classes != data.num_classes:
        labels = "one number" if data.is_regression else f"{len(data.labels)} labels"
        raise ClassificationError(
            f"{path}: a head with {len(weight)} outputs; {data.folder} has {labels}"
        )
    if bool(cfg.task.regression_target) != data.is_regression:
        raise ClassificationError(
            f"{path}: regression_target={cfg.task.regression_target}; {data.folder} "
            f"has regression={data.is_regression}"
        )
