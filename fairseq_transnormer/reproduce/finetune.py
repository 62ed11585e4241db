"""Fine-tuning on labelled texts: runs that start from a pre-trained model.

A cell's configuration is that of the pre-training; ``classification`` among its
overrides names the problem (a file of configs/classification/), ``model.*`` changes the
model, and all else is of the fine-tuning alone.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..checkpoints.identity import weights_fingerprint
from ..checkpoints.pretrained import FREE_FIELDS, PretrainedCheckpoint
from ..checkpoints.safe_loading import CheckpointError
from ..data.fingerprints import shortened
from ..data.labelled_texts import SentenceData, updates_of_training
from ..training.config import Configuration, compose
from .data import GLUE, PROBLEM, Data, data_of
from .errors import ReproduceError
from .plan import (
    DECIDED_BY,
    START,
    Conditions,
    batches,
    check_model,
    check_settings,
    common_settings,
    fairseq_task,
    name_of,
    scale,
    train_name,
    updates_of,
)
from .runs import CONFIGURATION, Run
from .schema import MODEL, Cell, Column, Table, TableFile, names_in

PRIMARY, TASK = "finetune", "sentence_prediction"
WARMUP_SHARE = 0.06
# one pre-trained model for all seeds of the fine-tuning
PRETRAINING_SEED = 1
# what a fine-tuning takes from its data
OF_DATA = ("task.num_classes", "task.max_positions", "criterion.regression_target")
OF_DATA += ("optimization.update_freq", "lr_scheduler.warmup_updates")
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
    overrides = {
        key: value
        for key, value in cell.overrides.items()
        if key == MODEL or _is_of_model(key)
    }
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
        before = (train_name(needed, replace(conditions, seed=PRETRAINING_SEED)),)
        start = os.path.relpath(f"{before[0]}/checkpoints/checkpoint_best.pt", own)
    model = _model(cell, conditions)
    if cell.job == "finetune_checkpoint":
        start = cell.overrides[START]
        _check_checkpoint(start, its, cell, conditions)
    configuration = _configuration(cell, conditions, where, its, model)
    configuration["checkpoint"]["finetune_from_model"] = start or None
    check_model(configuration["model"])
    module = "fairseq_transnormer.reproduce.finetune_run"
    return Run(
        name=own,
        configuration=configuration,
        data=where,
        seed=conditions.seed,
        updates=updates_of(configuration),
        command=(sys.executable, "-m", module, CONFIGURATION),
        needs=before,
        start=start,
    )


def _is_of_model(key: str) -> bool:
    """Whether the pre-training decides a setting."""
    group, _, setting = key.partition(".")
    return group == MODEL and setting not in ("", *FREE_FIELDS)


def _model(cell: Cell, conditions: Conditions) -> dict[str, Any]:
    """The configuration of the pre-trained model."""
    if cell.job == "finetune_checkpoint":
        return dict(PretrainedCheckpoint.read(cell.overrides[START]).model)
    (needed,) = needs(cell)
    task = fairseq_task(cell, conditions)
    by_hand = {
        key: value
        for key, value in conditions.overrides_of(task).items()
        if _is_of_model(key)
    }
    preset = conditions.preset
    values = preset.overrides | preset.task(task).overrides
    values = {k: v for k, v in values.items() if _is_of_model(k)}
    overrides = {**values, **needed.overrides, **by_hand}
    model = compose(conditions.configs, cell.config, overrides)["model"]
    scale(model, preset, preset.task(task), by_hand)
    return model


def _check_checkpoint(
    path: str, its: SentenceData, cell: Cell, conditions: Conditions
) -> None:
    try:
        PretrainedCheckpoint.read(path).check_data(its)
    except ValueError as error:
        raise ReproduceError(str(error)) from error
    for key in {**cell.overrides, **conditions.overrides_of(TASK)}:
        if key == MODEL or _is_of_model(key):
            _refuse(key)


def _refuse(key: str) -> None:
    allowed = ", ".join(sorted(FREE_FIELDS))
    raise ReproduceError(
        f"{key}: the model is the pre-trained one; allowed in a fine-tuning, as "
        f"model.NAME: {allowed}"
    )


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
    pretraining = conditions.overrides_of(fairseq_task(cell, conditions))
    for key in by_hand:
        of_model = key == MODEL or _is_of_model(key)
        if of_model and pretraining.get(key) != by_hand[key]:
            _refuse(key)
    check_settings(by_hand)
    own = {**cell.overrides, **by_hand}
    given = {
        key: value
        for key, value in {**common, **of_task.overrides, **own}.items()
        if key not in (MODEL, START) and not key.startswith("model.")
    }
    check_settings(given, (*DECIDED_BY, *OF_DATA))
    usual = compose(conditions.configs, PRIMARY, given)
    devices = max(1, conditions.gpus)
    batch, update_freq = batches(of_task, devices, usual["dataset"]["batch_size"])
    limits = usual["optimization"]
    updates = updates_of_training(
        its.splits["train"], batch, devices, update_freq, limits["max_epoch"]
    )
    # 0 of either is no limit
    updates = min(filter(None, (updates, limits["max_update"])), default=0)
    fixed = {
        "dataset.batch_size": batch,
        "optimization.update_freq": [update_freq],
        "optimization.max_update": updates,
        "lr_scheduler.warmup_updates": round(WARMUP_SHARE * updates),
        "task.num_classes": its.num_classes,
        "task.max_positions": model["max_positions"],
        "criterion.regression_target": its.is_regression,
    }
    overrides = {**given, **common_settings(conditions, where, devices), **fixed}
    configuration = compose(conditions.configs, PRIMARY, overrides)
    chosen = {key.removeprefix("model."): value for key, value in own.items()}
    free = {key: chosen[key] for key in FREE_FIELDS if key in chosen}
    configuration["model"] = model | free
    return configuration


def checkpoint_table(
    configs: Path,
    checkpoint: Path,
    problems: list[str],
    rates: list[float],
    name: str | None = None,
    pooling: str | None = None,
) -> Table:
    """The table of one checkpoint: a column a problem, the best of the learning rates.

    Args:
        configs: the folder of configurations.
        checkpoint: of a pre-trained model.
        problems: names in its classification/; "all" stands for the paper's.
        rates: learning rates.
        name: of the row and of its runs; by default the model's and the fingerprint of
            its weights, so that two checkpoints never share a run.
        pooling: instead of the checkpoint's.

    Raises:
        ReproduceError: a problem is not known, or the file is no such checkpoint.
    """
    known = names_in(configs / PROBLEM)
    chosen = [name for each in problems for name in (PAPERS if each == ALL else [each])]
    for each in chosen:
        if each not in known:
            allowed = ", ".join((ALL, *known))
            raise ReproduceError(f"problem {each!r} is not known; allowed: {allowed}")
    try:
        model = PretrainedCheckpoint.read(checkpoint).model["_name"]
        row = name or f"{model}-{shortened(weights_fingerprint(checkpoint))}"
    except (ValueError, CheckpointError) as error:
        raise ReproduceError(str(error)) from error
    shared = {START: str(checkpoint.resolve())}
    shared |= {"model.pooling": pooling} if pooling else {}
    cells = [
        Cell(
            row=row,
            column=column,
            job="finetune_checkpoint",
            config=PRIMARY,
            overrides={PROBLEM: problem, **shared},
            metric=metric,
            sweep={"optimization.lr": [[rate] for rate in dict.fromkeys(rates)]},
        )
        for problem in dict.fromkeys(chosen)
        for column, metric in _columns_of(problem)
    ]
    file = TableFile(
        title=f"Fine-tuning of {row}",
        task="validation splits; the best learning rate on them",
        columns={c.column: Column(metric=c.metric) for c in cells},
        rows={row: None},
        sweep=cells[0].sweep,
    )
    return Table(f"finetune_{row}", file, cells)


def _columns_of(problem: str) -> list[tuple[str, str]]:
    """Columns and metrics of a problem: for GLUE's, those of the paper's table."""
    if problem == "mnli":
        return [("MNLI-m", "valid_accuracy"), ("MNLI-mm", "valid1_accuracy")]
    return [(GLUE.get(problem, problem), "selection")]
