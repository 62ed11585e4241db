"""Find data that contradict themselves or their dictionary before training begins.

fairseq fails at the first batch with a token id beyond the dictionary, perhaps after
days.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from ..checkpoints.identity import (
    check_dictionary_file,
    identity_of,
    task_dictionary,
)
from ..data import binary_data
from ..data.binary_data import BinaryData, bin_file, in_parts
from ..data.subword_files import (
    DICTIONARY,
    RESERVED,
    SPECIAL,
    control_ids,
    dictionary_sha256,
    read_dictionary,
)
from .loading import training_folders

logger = logging.getLogger(__name__)

LABEL = "label"
# of all tokens: with more of them, a figure is not of the text that was asked for
MOST_LEFT_OUT = 0.5


def check_left_out(filter_indices, task, indices, dataset, *arguments, **keywords):
    """Around ``FairseqTask.filter_indices_by_size``.

    fairseq may skip samples that are too long for the model, but counts them as
    samples. The perplexity of nothing is then 1.00.

    Raises:
        ValueError: skipped samples have more than ``MOST_LEFT_OUT`` of the tokens.
    """
    kept = filter_indices(task, indices, dataset, *arguments, **keywords)
    count, sizes = len(indices) - len(kept), getattr(dataset, "sizes", None)
    if not count:
        return kept
    share = count / len(indices)
    if isinstance(sizes, list | tuple):  # of each column of a masked model's samples
        sizes = np.sum(sizes, axis=0)
    if isinstance(sizes, np.ndarray) and sizes.ndim == 1:
        share = 1 - sizes[kept].sum() / sizes[indices].sum()
    message = (
        f"{count:,} of {len(indices):,} samples are longer than the model takes: "
        f"{share:.1%} of the tokens are skipped"
    )
    if share > MOST_LEFT_OUT:
        raise ValueError(
            f"{message}; allowed: {MOST_LEFT_OUT:.0%}. task.sample_break_mode=none "
            "cuts long lines; task.tokens_per_sample is at most the model's "
            "max_positions"
        )
    logger.warning(message)
    return kept


def check_training_data(task, data: str, subset: str, trains: bool = False) -> None:
    """Check all shards of a split, though training opens one shard per epoch.

    data: folders, separated by colons, as in fairseq.
    trains: whether training opens the split, in each folder.

    Raises:
        ValueError: a folder lacks the split; a file is damaged or too short; an id is
            beyond the dictionary, or would begin, end, pad or mask a line; dict.txt is
            not data_prep's, or not the one of all folders and columns.
    """
    folders = training_folders(task, data)
    for folder in folders:
        # labelled texts have a folder for each column
        shards = {column: [*_shards(folder, column, subset)] for column in ("", "*/")}
        # fairseq reads the first folder at once
        if trains and folder != folders[0] and not any(shards.values()):
            raise ValueError(f"{folder}: no {subset}.idx; allowed: folders with it")
        for column, prefixes in shards.items():
            for prefix in prefixes:
                name = prefix.parent.name if column else ""
                dictionary = task_dictionary(task)
                if name == LABEL:
                    dictionary = getattr(task, "label_dictionary", None)
                # fairseq reads the first folder's
                file = folders[0] / name / DICTIONARY
                if file.is_file():
                    check_dictionary_file(file)
                if dictionary is not None:
                    if name != LABEL:
                        _check_dictionary(folder / name / DICTIONARY, dictionary)
                    _check_ids(prefix, dictionary, file)


def _check_dictionary(file: Path, dictionary) -> None:
    if file.is_file():
        symbols = [*SPECIAL, *read_dictionary(file)]
        if dictionary_sha256(symbols) != identity_of(dictionary):
            raise ValueError(
                f"{file}: its symbols are not those that the task reads; allowed: "
                "folders and columns of one dictionary"
            )


def check_labels(task, splits: Iterable[str]) -> None:
    """Check the labels of the splits that ``sentence_prediction`` trains and tests on.

    Raises:
        ValueError: a split has no labels, or a label is not below ``num_classes``.
    """
    loads = getattr(type(task), "load_dataset", None)
    if loads is not SentencePredictionTask.load_dataset:  # a subclass has its own items
        return
    folder, scores = Path(task.cfg.data, LABEL), bool(task.cfg.regression_target)
    for split in splits:
        file = folder / f"{split}.{'label' if scores else 'idx'}"
        if not file.is_file():
            raise ValueError(
                f"{file}: no such file, with regression_target={scores}; allowed for "
                "dataset.train_subset and dataset.valid_subset: splits with labels"
            )
        for prefix in () if scores else _shards(folder, "", split):
            _check_classes(prefix, task.label_dictionary, task.cfg.num_classes)


def _shards(folder: Path, column: str, subset: str) -> Iterator[Path]:
    """The files of a split without .idx: train, train1, ..."""
    for file in sorted(folder.glob(f"{column}{subset}*.idx")):
        if file.stem == subset or file.stem.removeprefix(subset).isdecimal():
            yield file.with_suffix("")


def _check_ids(prefix: Path, dictionary, file: Path) -> None:
    size, data = len(dictionary), _read(prefix)
    if data and (fault := data.fault(size, control_ids(dictionary))):
        raise ValueError(
            f"{fault}, since {file} has {size} symbols with {dictionary.nspecial} "
            f"special ones; allowed: data of text without {', '.join(RESERVED)}, "
            "with the dictionary that they were made with"
        )


def _check_classes(prefix: Path, dictionary, count: int) -> None:
    data = _read(prefix)
    for first, ids in in_parts(data.ids()) if data else ():
        classes = ids.astype(np.int64) - dictionary.nspecial
        wrong = (ids != dictionary.eos()) & ((classes < 0) | (classes >= count))
        if wrong.any():
            at = int(wrong.argmax())
            raise ValueError(
                f"{bin_file(prefix)}: line {data.line_of(first + at) + 1}: label "
                f"{dictionary[ids[at]]!r}, class {classes[at]}; allowed: 0 to "
                f"{count - 1} (task.num_classes={count})"
            )


def _read(prefix: Path) -> BinaryData | None:
    """The data; None for other formats, which fairseq reads."""
    try:
        return binary_data.read_binary_data(prefix)
    except binary_data.AnotherFormatError:
        return None
