"""Fine-tuning on labelled texts: a kind of job that needs a pre-trained model.

A cell's configuration is that of the pre-training; ``classification`` among its
overrides names the problem (a file of configs/classification/), ``model.*`` changes the
model, and all else is of the fine-tuning alone.
"""

import dataclasses
import os
import re
import sys
from pathlib import Path
from typing import Any

from ...checkpoints.identity import weights_fingerprint
from ...checkpoints.pretrained import FREE_FIELDS, PretrainedCheckpoint
from ...data import REPORT
from ...data.fingerprints import shortened
from ...data.labelled_texts import SentenceData, updates_of_training
from ...installation import PACKAGE
from ...training.config import Configuration, compose
from ..errors import ReproduceError
from ..runs.plans import Plan, Step
from ..runs.run_folder import RunFolder
from ..yaml_files import names_in
from .corpora import LabelledText
from .definitions import MODEL, Cell, Table, plain
from .jobs import (
    LAYOUT_KEYS,
    MACHINE_KEYS,
    Conditions,
    HydraTrain,
    changed_model,
    folder_name,
    named_configuration,
    run_name,
)
from .setting_checks import check_model, check_settings, check_updates

PRIMARY = "finetune"
PROBLEM = "classification"
OWN = "own"
CHECKPOINT = "checkpoint.finetune_from_model"
TASK = "sentence_prediction"
FINE_TUNING_RUN = "fairseq_transnormer.reproduce.runs.fine_tuning_run"
WARMUP_SHARE = 0.06
# what a fine-tuning takes from its data, its checkpoint and the devices
FIXED = (
    *("common.user_dir", "common.seed", "common.cpu", "task.data", "task.num_classes"),
    *("task.max_positions", "criterion.regression_target", "checkpoint.save_dir"),
    *("optimization.update_freq", "lr_scheduler.warmup_updates", CHECKPOINT),
    "distributed_training.distributed_world_size",
)
# one pre-trained model for all seeds of the fine-tuning
PRETRAINING_SEED = 1
# the paper's columns; MNLI has two
PAPERS = ("mnli", "qnli", "qqp", "sst2", "mrpc", "cola")
ALL = "all"
# names of GLUE's problems in its data's reports, and of their folders
FOLDERS = {
    "mnli": "MNLI",
    "qnli": "QNLI",
    "qqp": "QQP",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "cola": "CoLA",
    "rte": "RTE",
    "stsb": "STS-B",
}


class FineTune:
    """Fine-tuning of the model that the runner pre-trains."""

    most_devices = None
    fixed = FIXED

    def name(self, cell: Cell, conditions: Conditions) -> str:
        """The configuration, the problem, what is overridden, and the seed."""
        changed = {
            key.removeprefix("model."): plain(value)
            for key, value in sorted(cell.overrides.items())
        }
        first, *parts = named_configuration(cell.config, changed)
        return run_name(conditions, [first, *self._suffix(), *parts])

    def data(self, cell: Cell, conditions: Conditions) -> LabelledText:
        """The problem's folder in that of all problems, or that folder itself."""
        folder, problem = conditions.data_folder(TASK), cell.overrides[PROBLEM]
        named = folder / FOLDERS.get(problem, problem)
        itself = problem == OWN or (folder / REPORT).is_file()
        if itself and not named.is_dir():
            named = folder
        return LabelledText(named, TASK, FOLDERS.get(problem))

    def needs(self, cell: Cell) -> list[Cell]:
        """The pre-training."""
        overrides = {
            key: value
            for key, value in cell.overrides.items()
            if key == MODEL
            or key.startswith("model.")
            and key.partition(".")[2] not in FREE_FIELDS
        }
        return [
            dataclasses.replace(
                cell,
                job="hydra_train",
                overrides=overrides,
                sweep={},
                after={},
                seed=PRETRAINING_SEED,
            )
        ]

    def plan(self, cell: Cell, conditions: Conditions) -> Plan:
        corpus = self.data(cell, conditions)
        data = SentenceData.read(corpus.folder)
        name = self.name(cell, conditions)
        start, needs = self._start(cell, conditions, name)
        configuration = self._configuration(cell, conditions, data, start)
        check_model(configuration["model"])
        named = {key: v for key, v in cell.overrides.items() if key == MODEL}
        plain = compose(conditions.configs, cell.config, named)
        command = [sys.executable, "-m", FINE_TUNING_RUN]
        return Plan(
            name=name,
            configuration=configuration,
            data=str(corpus.folder),
            data_fingerprint=corpus.fingerprint(),
            seed=conditions.seed,
            updates=configuration["optimization"]["max_update"],
            steps=[Step("train", command)],
            origin={
                "preset": conditions.preset.name,
                "configuration": cell.config,
                "overrides": cell.overrides,
                "further_overrides": conditions.set_by_hand(TASK),
                "changed_model": changed_model(configuration, plain),
            },
            # the weights are compared instead
            machine_keys=(*MACHINE_KEYS, CHECKPOINT),
            layout_keys=LAYOUT_KEYS,
            needs=needs,
            start=start,
            chosen=(*cell.overrides, *conditions.overrides_of(TASK)),
        )

    def _suffix(self) -> list[str]:
        return []

    def _start(
        self, cell: Cell, conditions: Conditions, name: str
    ) -> tuple[str | None, tuple[str, ...]]:
        """The checkpoint to start from, as seen from the run's folder, and its run."""
        pretraining = self._pretraining(cell, conditions)
        checkpoint = f"{pretraining}/checkpoints/checkpoint_best.pt"
        return os.path.relpath(checkpoint, name), (pretraining,)

    def _pretraining(self, cell: Cell, conditions: Conditions) -> str:
        (needed,) = self.needs(cell)
        return HydraTrain().name(needed, conditions.of(PRETRAINING_SEED))

    def _model(self, cell: Cell, conditions: Conditions) -> dict[str, Any]:
        """The configuration of the pre-trained model."""
        (needed,) = FineTune.needs(self, cell)
        task = self._pretraining_task(cell, conditions)
        further = {
            key: value
            for key, value in conditions.overrides_of(task).items()
            if key.startswith("model.") and key.partition(".")[2] not in FREE_FIELDS
        }
        overrides = needed.overrides | further
        configuration = compose(conditions.configs, cell.config, overrides)
        conditions.preset.scale(configuration["model"], task, further)
        return configuration["model"]

    def _pretraining_task(self, cell: Cell, conditions: Conditions) -> str:
        return compose(conditions.configs, cell.config, {})["task"]["_name"]

    def _of_pretraining(self, cell: Cell, conditions: Conditions) -> dict[str, Any]:
        """Settings of the model that reach the pre-training, too."""
        task = self._pretraining_task(cell, conditions)
        return cell.overrides | conditions.overrides_of(task)

    def _check_model_settings(
        self, own: dict[str, Any], cell: Cell, conditions: Conditions
    ) -> None:
        """Raise ReproduceError for one that the pre-trained model does not have."""
        decided = {
            key: value
            for key, value in own.items()
            if key.partition(".")[0] == MODEL
            and key.partition(".")[2] not in FREE_FIELDS
        }
        # most rows have none, and need no configuration composed
        there = self._of_pretraining(cell, conditions) if decided else {}
        for key, value in decided.items():
            if key not in there or there[key] != value:
                allowed = ", ".join(sorted(FREE_FIELDS))
                raise ReproduceError(
                    f"{key}={value}: the model is the pre-trained one; allowed in a "
                    f"fine-tuning, as model.NAME: {allowed}"
                )

    def _configuration(
        self,
        cell: Cell,
        conditions: Conditions,
        data: SentenceData,
        start: str | None,
    ) -> Configuration:
        model = self._model(cell, conditions)
        of_task = conditions.preset.task(TASK)
        common = {
            key: value
            for key, value in conditions.preset.overrides.items()
            if key.startswith("common.")
        }
        own = cell.overrides | conditions.overrides_of(TASK)
        self._check_model_settings(own, cell, conditions)
        # the model's are for _model, but for those that a fine-tuning may choose
        given = {
            key: value
            for key, value in {**common, **of_task.overrides, **own}.items()
            if key != MODEL and not key.startswith("model.")
        }
        check_settings(conditions.configs, PRIMARY, given, self.fixed)
        composed = compose(conditions.configs, PRIMARY, given)
        devices = max(1, conditions.gpus)
        batch, update_freq = of_task.batches(devices, composed["dataset"]["batch_size"])
        updates = updates_of_training(
            data.splits["train"],
            batch,
            devices,
            update_freq,
            composed["optimization"]["max_epoch"],
        )
        # 0 of either is no limit
        limits = (updates, composed["optimization"]["max_update"])
        updates = min(filter(None, limits), default=0)
        check_updates(updates)
        configuration = compose(
            conditions.configs,
            PRIMARY,
            {
                **given,
                "common.user_dir": str(PACKAGE),
                "common.seed": conditions.seed,
                "common.cpu": conditions.gpus == 0,
                "distributed_training.distributed_world_size": devices,
                "dataset.batch_size": batch,
                "optimization.update_freq": [update_freq],
                "optimization.max_update": updates,
                "lr_scheduler.warmup_updates": round(WARMUP_SHARE * updates),
                "task.data": str(data.folder),
                "task.num_classes": data.num_classes,
                "task.max_positions": model["max_positions"],
                "criterion.regression_target": data.is_regression,
                "checkpoint.save_dir": "checkpoints",
                CHECKPOINT: start,
            },
        )
        chosen = {key.removeprefix("model."): value for key, value in own.items()}
        free = {key: chosen[key] for key in FREE_FIELDS if key in chosen}
        configuration["model"] = model | free
        return configuration


class FineTuneFromScratch(FineTune):
    """The same training of a model with fresh weights, for comparison."""

    def needs(self, cell: Cell) -> list[Cell]:
        return []

    def _suffix(self) -> list[str]:
        return ["from_scratch"]

    def _start(self, cell, conditions, name):
        return None, ()


class FineTuneCheckpoint(FineTune):
    """Fine-tuning of a checkpoint that the overrides name."""

    fixed = tuple(key for key in FIXED if key != CHECKPOINT)

    def needs(self, cell: Cell) -> list[Cell]:
        return []

    def name(self, cell: Cell, conditions: Conditions) -> str:
        """The row, which stands for the checkpoint, in the place of its path."""
        overrides = {k: v for k, v in cell.overrides.items() if k != CHECKPOINT}
        named = dataclasses.replace(cell, config=cell.row, overrides=overrides)
        return super().name(named, conditions)

    def plan(self, cell: Cell, conditions: Conditions) -> Plan:
        try:
            checkpoint = PretrainedCheckpoint.read(cell.overrides[CHECKPOINT])
            checkpoint.check_data(SentenceData.read(self.data(cell, conditions).folder))
            plan = super().plan(cell, conditions)
            checkpoint.check_model(plan.configuration["model"])
            plan.weights = weights_fingerprint(plan.start)
        except ValueError as error:
            raise ReproduceError(str(error)) from error
        return plan

    def _start(self, cell, conditions, name):
        return str(Path(cell.overrides[CHECKPOINT]).resolve()), ()

    def _of_pretraining(self, cell: Cell, conditions: Conditions) -> dict[str, Any]:
        return {}

    def _model(self, cell: Cell, conditions: Conditions) -> dict[str, Any]:
        return PretrainedCheckpoint.read(cell.overrides[CHECKPOINT]).model


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
        ReproduceError: a problem or a learning rate is not allowed, or the file is no
            such checkpoint.
    """
    known = names_in(configs / PROBLEM)
    problems = [
        name for each in problems for name in (PAPERS if each == ALL else (each,))
    ]
    wrong = [each for each in problems if each not in known]
    if wrong:
        raise ReproduceError(
            f"problem {wrong[0]!r} is not known; allowed: {ALL}, {', '.join(known)}"
        )
    if not all(rate > 0 for rate in rates):
        raise ReproduceError(f"--lr {rates}; allowed: above 0")
    row = name or _default_name(checkpoint)
    shared = {CHECKPOINT: str(checkpoint.resolve())}
    shared |= {"model.pooling": pooling} if pooling else {}
    sweep = {"optimization.lr": [[rate] for rate in dict.fromkeys(rates)]}
    cells = [
        Cell(
            row=row,
            column=column,
            job=f"{__name__}:{FineTuneCheckpoint.__name__}",
            config=PRIMARY,
            overrides={PROBLEM: problem, **shared},
            metric=metric,
            paper=None,
            after={},
            sweep=sweep,
        )
        for problem in dict.fromkeys(problems)
        for column, metric in _figures_of(problem)
    ]
    columns = [cell.column for cell in cells]
    return Table(
        name=re.sub(r"[^\w.-]", "_", row),
        title=f"Fine-tuning of {row}",
        task="validation splits; the best learning rate on them",
        rows=[row],
        columns=columns,
        ranked=[],
        cells=cells,
        figure=None,
        sweep=sweep,
    )


def _default_name(checkpoint: Path) -> str:
    try:
        model = PretrainedCheckpoint.read(checkpoint).model["_name"]
    except ValueError as error:
        raise ReproduceError(str(error)) from error
    return f"{model}-{shortened(_weights_of(checkpoint))}"


def _weights_of(checkpoint: Path) -> str:
    try:
        return weights_fingerprint(checkpoint)
    except ValueError as error:
        raise ReproduceError(str(error)) from error


def check_name(table: Table, checkpoint: Path, runs: Path) -> None:
    """Raise ReproduceError if runs under the table's name are of other weights.

    Args:
        table: what ``checkpoint_table`` made of the checkpoint.
        checkpoint: whose weights count.
        runs: folder of the runs of the preset.
    """
    (row,) = table.rows
    prefix = f"{folder_name([row])}+{PROBLEM}="
    now = _weights_of(checkpoint)
    for path in sorted(runs.iterdir()) if runs.is_dir() else ():
        for seed in sorted(path.glob("seed*")) if path.name.startswith(prefix) else ():
            folder = RunFolder(seed)
            start = folder.start() if folder.exists() else None
            there = start and start.weights
            if there not in (None, now) and folder.has_anything_to_lose():
                raise ReproduceError(
                    f"--name {row}: {seed} is of weights {there}, and {checkpoint} has "
                    f"{now}; allowed: another name, or none, which is made of the "
                    "fingerprint"
                )


def _figures_of(problem: str) -> list[tuple[str, str]]:
    """Columns and metrics of a problem: for GLUE's, those of the paper's table."""
    if problem == "mnli":
        return [("MNLI-m", "accuracy"), ("MNLI-mm", "mismatched_accuracy")]
    return [(FOLDERS.get(problem, problem), "selection")]
