"""Labelled texts as fairseq's sentence_prediction reads them.

A folder has input0, input1 (pairs only) and label, each with the splits' files, and
beside them a readable table of each split. Class numbers are positions in the list of
labels, whatever the labels' frequencies.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairseq_transnormer.data import REPORT
from fairseq_transnormer.data.subword_files import MASK, SPECIAL

from ..folders.binary_folder import fairseq_data, ids_builder, reserved_words
from ..folders.encoders import EOS_ID, SPECIAL_COUNT, UNKNOWN_ID
from ..folders.options import Place
from ..folders.parallel import map_batches
from ..folders.staging import Record, Work, publish
from .labelled_examples import LabelledSplit
from .subword import Subword
from .truncation import RULE, PairEncoder, fitting

HEADER = ("index", "text", "pair", "label")


@dataclass(frozen=True)
class Problem:
    """Texts to classify, or to give a number to.

    ``labels`` are those of the classes in their order, None for numbers, which are
    divided by ``target_scale``.
    """

    splits: dict[str, LabelledSplit]
    labels: list[str] | None
    target_scale: float = 1.0

    @property
    def inputs(self) -> list[str]:
        """The folders of the texts: one, of pairs two."""
        pairs = self.splits["train"].examples[0].pair is not None
        return ["input0", "input1"] if pairs else ["input0"]


def prepare_labelled_folder(
    place: Place,
    task: str,
    source: Record,
    read: Callable[[], Problem],
    subword: Subword,
    workers: int,
) -> None:
    """Make a folder of what ``read`` returns, unless it is there already."""
    settings = {
        "task": task,
        "source": source,
        "subword": subword.record(),
        "max_positions": subword.max_positions,
    }

    def make(work: Work) -> Record:
        problem = read()
        splits = problem.splits
        _require_examples(task, problem)
        _write_dictionaries(work, problem, subword)
        counts = {
            name: _write_split(work, name, problem, subword, workers)
            for name in sorted(splits, key=lambda split: split == "train")
        }
        for split in splits.values():
            if split.skipped:
                print(f"{split.where}: left out {split.left_out()}")
        return {
            **settings,
            "labels": problem.labels or [],
            "regression": problem.labels is None,
            "target_scale": problem.target_scale,
            "pairs": len(problem.inputs) > 1,
            "splits": {name: counts[name]["examples"] for name in splits},
            "counts": {name: counts[name] for name in splits},
            "truncation": RULE,
            "malformed": {name: split.record() for name, split in splits.items()},
        }

    publish(place, settings, REPORT, make)


def _require_examples(task: str, problem: Problem) -> None:
    for name, split in problem.splits.items():
        if not split.examples:
            raise ValueError(f"{task} {name}: {split.where}: no example")
        unlabelled = [each.line for each in split.examples if each.label is None]
        if 0 < len(unlabelled) < len(split.examples):
            raise ValueError(
                f"{split.where}, line {unlabelled[0]}: no label, but other lines have "
                "one; allowed are all or none"
            )
    reserved = sorted({*SPECIAL, MASK}.intersection(problem.labels or []))
    if reserved:
        raise ValueError(f"{task}: label {reserved[0]!r}: a symbol of fairseq's")


def _write_dictionaries(work: Work, problem: Problem, subword: Subword) -> None:
    for part in problem.inputs:
        shutil.copyfile(subword.dictionary_path, work.file(f"{part}/dict.txt"))
    for path in subword.files:
        shutil.copyfile(path, work.file(path.name))
    if problem.labels is not None:
        dictionary = fairseq_data().Dictionary()
        for label in problem.labels:
            dictionary.add_symbol(label)
        dictionary.save(str(work.file("label/dict.txt")))


def _write_split(
    work: Work, name: str, problem: Problem, subword: Subword, workers: int
) -> dict[str, Any]:
    examples = problem.splits[name].examples
    counts = _write_inputs(work, name, problem, subword, workers)
    labels = [each.label for each in examples if each.label is not None]
    if labels and problem.labels is None:
        targets = [f"{float(x) / problem.target_scale}\n" for x in labels]
        work.file(f"label/{name}.label").write_text("".join(targets))
    elif labels:
        _write_labels(work, f"label/{name}", problem.labels, labels)
        found = Counter(labels)
        counts["labels"] = {label: found[label] for label in problem.labels}
    # tabs set columns apart; nothing is quoted, and no text has a tab
    rows = [(each.index, each.text, each.pair, each.label) for each in examples]
    lines = ["\t".join(field or "" for field in row) + "\n" for row in (HEADER, *rows)]
    table = work.file(f"{name}.tsv")
    table.write_text("".join(lines), encoding="utf-8", newline="\n")
    return counts


def _write_inputs(
    work: Work, name: str, problem: Problem, subword: Subword, workers: int
) -> dict[str, Any]:
    import torch
    from tqdm import tqdm

    split, inputs, dictionary = problem.splits[name], problem.inputs, subword.dictionary
    builders = [ids_builder(work, f"{part}/{name}", len(dictionary)) for part in inputs]
    counts = {"examples": 0, "tokens": 0, "unknown": 0, "truncated": 0}
    texts = ((example.text, example.pair) for example in split.examples)
    total = len(split.examples)
    with tqdm(total=total, unit=" examples", desc=name, disable=None) as bar:
        for encoded in map_batches(PairEncoder(subword.encoder), texts, workers):
            columns, truncated = fitting(encoded, subword.max_positions)
            for builder, column in zip(builders, columns, strict=True):
                for place, sentence in reserved_words(column, dictionary):
                    line = split.examples[counts["examples"] + place].line
                    raise ValueError(f"{split.where}, line {line}: {sentence}")
                for ids in column:
                    builder.add_item(torch.from_numpy(ids))
                    counts["tokens"] += len(ids)
                    counts["unknown"] += int((ids == UNKNOWN_ID).sum())
            counts["examples"] += len(columns[0])
            counts["truncated"] += truncated
            bar.update(len(columns[0]))
    for builder, part in zip(builders, inputs, strict=True):
        builder.finalize(str(work.file(f"{part}/{name}.idx")))
    return counts


def _write_labels(work: Work, name: str, classes: list[str], labels: list[str]) -> None:
    import torch

    builder = ids_builder(work, name, SPECIAL_COUNT + len(classes))
    ids = {label: SPECIAL_COUNT + place for place, label in enumerate(classes)}
    for label in labels:
        row = np.array([ids[label], EOS_ID], dtype=np.int32)
        builder.add_item(torch.from_numpy(row))
    builder.finalize(str(work.file(f"{name}.idx")))
