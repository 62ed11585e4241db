"""Predictions for a labelled split beside its labels: a table and metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..data.whole_files import make_folder_of, write_text
from ..plugin.criterions import metrics
from .classifier import TextClassifier
from .errors import ClassificationError

COLUMNS = ("example", "label", "prediction")


def evaluate(
    classifier: TextClassifier,
    split: str,
    table: Path | None = None,
    batch_size: int = 32,
    positive_class: int | None = None,
) -> dict[str, float]:
    """Metrics of a split, and every prediction.

    Args:
        classifier: to evaluate.
        split: with labels.
        table: file to write ``example``, ``label``, ``prediction`` and a column for
            each label's probability to, set apart by tabs.
        batch_size: examples that run together.
        positive_class: number of the class that F1 is about; by default that of the
            fine-tuning.

    Raises:
        ClassificationError: the split has no labels, ``positive_class`` is none of its
            classes, or the table cannot be written.
    """
    if table is not None:
        prepare_result(table)
    if positive_class is None:
        positive_class = classifier.positive_class
    classes = len(classifier.data.labels)
    if not (classifier.data.is_regression or 0 <= positive_class < classes):
        raise ClassificationError(
            f"positive_class={positive_class}; allowed: 0 to {classes - 1}"
        )
    predictions = classifier.classify_split(split, batch_size)
    data = classifier.data
    dataset = classifier.task.dataset(split)
    if len(dataset) and "target" not in dataset[0]:
        raise ClassificationError(f"split {split!r} of {data.folder} has no labels")
    truth = [np.asarray(dataset[i]["target"]).item() for i in range(len(dataset))]
    if data.is_regression:
        scores = [each.score for each in predictions]
        # 2.632, and not 2.6319999999999997
        truth = [round(value * data.target_scale, 6) for value in truth]
        shown = list(zip(truth, scores, strict=True))
        found = metrics.of_scores(np.array(scores), np.array(truth))
    else:
        numbers = [data.labels.index(each.label) for each in predictions]
        confusion = np.zeros((len(data.labels), len(data.labels)))
        np.add.at(confusion, (truth, numbers), 1)
        shown = [
            (data.labels[t], each.label, *each.probabilities.values())
            for t, each in zip(truth, predictions, strict=True)
        ]
        found = metrics.of_classes(confusion, positive_class)
    if table is not None:
        rows = [(*COLUMNS, *data.labels)]
        rows += [(i, *each) for i, each in enumerate(shown)]
        text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
        write_result(table, text)
    return found


def prepare_result(path: Path) -> None:
    """Make the folder of a file that ``write_result`` is to write, before any work.

    Raises:
        ClassificationError: that cannot be, or a folder has the file's name.
    """
    try:
        make_folder_of(path, "the result")
    except ValueError as error:
        raise ClassificationError(str(error)) from error


def write_result(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        ClassificationError: it cannot be written.
    """
    try:
        write_text(path, text)
    except OSError as error:
        raise ClassificationError(f"{path}: {error.strerror}") from error
