"""Fine-tuning on labelled texts: runs that start from a pre-trained model.

A cell's configuration is that of the pre-training. ``classification`` among its
overrides names the problem (of configs/base/classification.yaml); ``model.*`` changes
the model. All else is of the fine-tuning alone.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ..analysis.trivial_rules import text_rules
from ..checkpoints.identity import weights_fingerprint
from ..checkpoints.pretrained import FREE_FIELDS, PretrainedCheckpoint
from ..data.labelled_texts import SentenceData
from ..training.config import CLASSIFICATION, Configuration, compose
from . import plan
from .data import GLUE, PROBLEM, Data, data_of
from .plan import START, Conditions, fairseq_task, name_of
from .runs import Run
from .schema import MODEL, Cell, Column, Table, TableFile, named_in

PRIMARY, TASK = "finetune", "sentence_prediction"
WARMUP_SHARE = 0.06
# one pre-trained model for all seeds of the fine-tuning
PRETRAINING_SEED = 1
# what a fine-tuning takes from its data
OF_DATA = (
    *("task.num_classes", "task.max_positions", "criterion.regression_target"),
    "lr_scheduler.warmup_updates",
)
# the paper's columns; MNLI has two
ALL, PAPERS = "all", ("mnli", "qnli", "qqp", "sst2", "mrpc", "cola")


def name(cell: Cell, conditions: Conditions) -> str:
    """The configuration, the problem, what is overridden, and the seed."""
    changed = {k: v for k, v in cell.overrides.items() if k != START}
    if cell.job == "finetune_checkpoint":  # its row stands for the checkpoint
        return name_of(conditions, cell.row, changed)
    if cell.job == "finetune_from_scratch":
        changed["from_scratch"] = True
    return name_of(conditions, cell.config, changed)


def data(cell: Cell, conditions: Conditions) -> Data:
    """The problem's folder in that of all problems, or that folder itself."""
    return data_of(conditions.folder_of(TASK), TASK, TASK, cell.overrides)


def needs(cell: Cell) -> list[Cell]:
    """The pre-training."""
    overrides = {k: v for k, v in cell.overrides.items() if _is_of_model(k)}
    return [
        replace(cell, job="train", overrides=overrides, sweep={}, seed=PRETRAINING_SEED)
    ]


def run(cell: Cell, conditions: Conditions) -> Run:
    """The fine-tuning of a cell."""
    where = data(cell, conditions)
    its = SentenceData.read(where.folder)
    own, start, before = name(cell, conditions), "", ()
    if cell.job == "finetune":
        (needed,) = needs(cell)
        one = replace(conditions, seed=PRETRAINING_SEED)
        before = (plan.train_name(needed, one),)
        start = os.path.relpath(f"{before[0]}/checkpoints/checkpoint_best.pt", own)
    if cell.job == "finetune_checkpoint":
        start = cell.overrides[START]
        checkpoint = PretrainedCheckpoint.read(start)
        checkpoint.check_data(its)
        model, of_model = dict(checkpoint.model), {}
    else:
        model, of_model = _model(cell, conditions)
    for key, value in conditions.overrides_of(TASK).items():
        if _is_of_model(key) and of_model.get(key) != value:
            allowed = ", ".join(sorted(FREE_FIELDS))
            raise ValueError(
                f"{key}: the model is the pre-trained one; allowed in a fine-tuning, "
                f"as model.NAME: {allowed}"
            )
    configuration = _configuration(cell, conditions, where, its, model)
    configuration["checkpoint"]["finetune_from_model"] = start or None
    module = "reproduce.finetune_run"
    return plan.training(own, configuration, where, module, needs=before, start=start)


def _is_of_model(key: str) -> bool:
    """Whether the pre-training decides a setting."""
    group, _, setting = key.partition(".")
    return group == MODEL and setting not in FREE_FIELDS


def _model(cell: Cell, conditions: Conditions) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pre-trained model, and what a command sets in its pre-training."""
    (needed,), preset = needs(cell), conditions.preset
    task = fairseq_task(cell, conditions)
    values = preset.overrides | preset.task(task).overrides
    by_hand = conditions.overrides_of(task)
    of_model = {k: v for k, v in by_hand.items() if "." in k and _is_of_model(k)}
    values = {k: v for k, v in values.items() if "." in k and _is_of_model(k)}
    overrides = {**values, **needed.overrides, **of_model}
    model = compose(conditions.configs, cell.config, overrides)["model"]
    plan.scale(model, preset, preset.task(task), of_model)
    return model, by_hand


def _configuration(
    cell: Cell,
    conditions: Conditions,
    where: Data,
    its: SentenceData,
    model: dict[str, Any],
) -> Configuration:
    preset, of_task = conditions.preset, conditions.preset.task(TASK)
    common = {k: v for k, v in preset.overrides.items() if k.startswith("common.")}
    by_hand = conditions.overrides_of(TASK)
    plan.check_settings(by_hand)
    own = {**cell.overrides, **by_hand}
    given = {
        key: value
        for key, value in {**common, **of_task.overrides, **own}.items()
        if key not in (MODEL, START) and not key.startswith("model.")
    }
    plan.check_settings(given, (*plan.DECIDED_BY, *OF_DATA))
    usual = compose(conditions.configs, PRIMARY, given)
    devices = max(1, conditions.gpus)
    of_preset = of_task.sequences_per_update or usual["dataset"]["batch_size"]
    fixed = plan.batch_settings(of_task, devices, given.pop(plan.BATCH, of_preset))
    batch, (update_freq,) = fixed.values()
    limits = usual["optimization"]
    updates = updates_of_training(
        its.splits["train"], batch, devices, update_freq, limits["max_epoch"]
    )
    # 0 of either is no limit
    updates = min(filter(None, (updates, limits["max_update"])), default=0)
    fixed |= {
        "optimization.max_update": updates,
        "lr_scheduler.warmup_updates": round(WARMUP_SHARE * updates),
        "task.num_classes": its.num_classes,
        "task.max_positions": model["max_positions"],
        "criterion.regression_target": its.is_regression,
    }
    common = plan.common_settings(conditions, where, devices)
    configuration = compose(conditions.configs, PRIMARY, {**given, **common, **fixed})
    free = {k: own[f"model.{k}"] for k in FREE_FIELDS if f"model.{k}" in own}
    configuration["model"] = model | free
    return configuration


def checkpoint_table(
    configs: Path,
    checkpoint: Path,
    problems: Sequence[str],
    rates: Sequence[float],
    name: str | None = None,
    pooling: str | None = None,
) -> Table:
    """The table of one checkpoint: a column a problem, the best of the learning rates.

    Args:
        problems: names in base/classification.yaml; "all" stands for the paper's.
        name: of the row and of its runs. By default it has the model's name and its
            weights' fingerprint, so that two checkpoints never share a run.
        pooling: instead of the checkpoint's; part of the row's name.

    Raises:
        ValueError: a problem is not known, or the file is no such checkpoint.
    """
    chosen = [name for each in problems for name in (PAPERS if each == ALL else [each])]
    for each in chosen:
        named_in("problem", each, [ALL, *OmegaConf.load(configs / CLASSIFICATION)])
    model = PretrainedCheckpoint.read(checkpoint).model["_name"]
    row = name or f"{model}-{weights_fingerprint(checkpoint)[:12]}"
    shared = {START: str(checkpoint.resolve())}
    if pooling:
        row, shared["model.pooling"] = f"{row}-{pooling}", pooling
    sweep = {"optimization.lr": [[rate] for rate in dict.fromkeys(rates)]}
    cells = []
    for problem in dict.fromkeys(chosen):
        # for GLUE's, those of the paper's table
        metrics = {GLUE.get(problem, problem): "selection"}
        if problem == "mnli":
            metrics = {"MNLI-m": "valid_accuracy", "MNLI-mm": "valid1_accuracy"}
        given = "finetune_checkpoint", PRIMARY, {PROBLEM: problem, **shared}
        cells += [Cell(row, c, *given, m, sweep=sweep) for c, m in metrics.items()]
    columns = {cell.column: Column(metric=cell.metric) for cell in cells}
    file = TableFile(f"Fine-tuning of {row}", columns, {row: None}, sweep=sweep)
    file.task = "validation splits; the best learning rate on them"
    return Table(f"finetune_{row}", file, cells)


def trivial_figures(table: Table, conditions: Conditions) -> str:
    """The metric of each column, with that of a rule that always says the same."""
    found = []
    for cell in table.cells:
        its = SentenceData.read(data(cell, conditions).folder)
        split, _, metric = cell.metric.partition("_")
        if not metric:  # what the best checkpoint is chosen by
            usual = compose(conditions.configs, PRIMARY, dict(cell.overrides))
            split, metric = "valid", usual["checkpoint"]["best_checkpoint_metric"]
        ((rule, figures),) = text_rules(its, split, words=False).items()
        found.append(f"{cell.column}: {metric} ({rule}: {figures[metric]:.2f})")
    return "; ".join(found)


def updates_of_training(
    examples: int, batch_size: int, devices: int, update_freq: int, epochs: int
) -> int:
    """Updates that fairseq makes of so many epochs.

    Args:
        examples: of the train split.
        batch_size: examples of a device at once.
        devices: that share the batches.
        update_freq: batches that are accumulated.
        epochs: how often the train split is gone through.
    """
    batches = -(-examples // batch_size)
    of_a_device = -(-batches // devices)
    return epochs * -(-of_a_device // update_freq)
