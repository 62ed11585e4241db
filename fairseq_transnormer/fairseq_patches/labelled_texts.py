"""Labels of ``sentence_prediction`` are looked at when a split is opened.

fairseq finds a word among the scores after the texts have been read, without its file;
takes NaN and infinity; and says of a column that is too short that lengths must match.
"""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from ..data.binary_data import (
    AnotherFormatError,
    BinaryData,
    bin_file,
    idx_file,
    in_parts,
    read_binary_data,
)

COLUMNS = ("input0", "input1", "label")


def check_folder_and_set_up(setup_task, cfg, **arguments):
    """Around tasks/__init__.py, setup_task: classes need the names of their labels.

    Raises:
        ValueError: the folder has none, as one of scores has not.
    """
    if getattr(cfg, "_name", None) == "sentence_prediction" and cfg.data:
        names = Path(cfg.data, "label", "dict.txt")
        if not cfg.regression_target and not names.is_file():
            raise ValueError(
                f"{names}: no such file, with regression_target=False; allowed: a "
                "folder with classes, or --regression-target (criterion."
                "regression_target=true) for one with scores"
            )
    return setup_task(cfg, **arguments)


def check_labels_and_load(load_dataset, task, split: str, combine=False, **keywords):
    """Around tasks/sentence_prediction.py, load_dataset.

    Raises:
        ValueError: a column has another number of examples than the first, a score is
            no finite number, or a class is none of ``num_classes``; file, line and what
            is allowed are named.
    """
    folder = Path(task.cfg.data)
    counts = {
        idx_file(folder / column / split): count
        for column in COLUMNS
        if (count := _examples(folder / column / split, combine))
    }
    if task.cfg.regression_target:
        scores = folder / "label" / f"{split}.label"
        if scores.is_file():
            counts[scores] = sum(1 for _ in _scores(scores, task.cfg.num_classes))
    first = next(iter(counts.items()), None)
    for file, count in counts.items():
        if count != first[1]:
            raise ValueError(
                f"{file}: {count:,} examples; allowed: {first[1]:,}, as {first[0]} has"
            )
    dataset = load_dataset(task, split, combine=combine, **keywords)
    if not task.cfg.regression_target:
        _check_classes(folder / "label" / split, combine, task)
    return dataset


def check_labelled(task) -> None:
    """Refuse unlabelled splits where training begins.

    fairseq ends with a KeyError at the first batch: of the second split that it
    validates on, after an epoch that is not saved.

    Raises:
        ValueError: a split that is loaded, as those of training and validation are by
            then, has no labels.
    """
    loads = getattr(type(task), "load_dataset", None)
    if loads is not SentencePredictionTask.load_dataset:  # a subclass has its own items
        return
    for split, dataset in task.datasets.items():
        if len(dataset) and "target" not in dataset[0]:
            scores = bool(task.cfg.regression_target)
            file = Path(
                task.cfg.data, "label", f"{split}.{'label' if scores else 'bin'}"
            )
            raise ValueError(
                f"{file}: no such file, with regression_target={scores}; allowed for "
                "dataset.train_subset and dataset.valid_subset: splits with labels"
            )


def _examples(prefix: Path, combine: bool) -> int:
    """How many a column has; 0 where it is not there, or in another format."""
    try:
        return sum(len(shard.sizes) for shard in _shards(prefix, combine))
    except AnotherFormatError:
        return 0


def _shards(prefix: Path, combine: bool) -> Iterator[BinaryData]:
    for shard in itertools.count():
        path = Path(f"{prefix}{shard or ''}")
        if not idx_file(path).is_file() or (shard and not combine):
            return
        yield read_binary_data(path)


def _check_classes(prefix: Path, combine: bool, task) -> None:
    """fairseq fails at the first batch with such a label, on a GPU without its name."""
    dictionary, count = task.label_dictionary, task.cfg.num_classes
    try:
        for shard in _shards(prefix, combine):
            for first, ids in in_parts(shard.ids()):
                classes = ids.astype(np.int64) - dictionary.nspecial
                is_label = ids != dictionary.eos()
                wrong = is_label & ((classes < 0) | (classes >= count))
                if wrong.any():
                    at = int(wrong.argmax())
                    raise ValueError(
                        f"{bin_file(shard.prefix)}: line "
                        f"{shard.line_of(first + at) + 1}: label "
                        f"{dictionary[ids[at]]!r}, class {classes[at]}; allowed: 0 to "
                        f"{count - 1} (task.num_classes={count})"
                    )
    except AnotherFormatError:  # fairseq's to read
        return


def _scores(file: Path, count: int) -> Iterator[list[float]]:
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                scores = [float(each) for each in line.split()]
            except ValueError:
                scores = []
            if len(scores) != count or not all(map(math.isfinite, scores)):
                raise ValueError(
                    f"{file}: line {number}: {line.strip()[:80]!r}; allowed: {count} "
                    f"finite numbers (task.num_classes={count})"
                )
            yield scores
