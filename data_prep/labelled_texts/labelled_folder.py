"""Labelled texts as fairseq's sentence_prediction reads them.

A folder has input0, input1 (pairs only) and label, each with the splits' files, and
beside them a readable table of each split. Class numbers are positions in the list of
labels, whatever the labels' frequencies.
"""

import argparse
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.folders.encoders import EOS_ID, SPECIAL_COUNT, UNKNOWN_ID
from data_prep.folders.fairseq_format import fairseq_data, ids_builder, reserved_words
from data_prep.folders.parallel import map_batches
from data_prep.folders.staging import Record, Work, publish
from data_prep.folders.verify import verify_folder
from data_prep.labelled_texts.labelled_examples import Example, LabelledSplit
from data_prep.labelled_texts.subword import Subword
from data_prep.labelled_texts.truncation import RULE, PairEncoder, fitting
from fairseq_transnormer.data import REPORT
from fairseq_transnormer.data.subword_files import MASK, SPECIAL

COLUMNS = ("index", "text", "pair", "label")


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
    options: argparse.Namespace,
    dest: Path,
    task: str,
    source: dict[str, Any],
    read: Callable[[], Problem],
    subword: Subword,
) -> None:
    """Makes ``dest`` of what ``read`` returns, unless it is there already."""
    settings = {
        "task": task,
        "source": source,
        "subword": subword.record(),
        "max_positions": subword.max_positions,
    }

    def make(work: Work) -> Record:
        problem = read()
        _require_examples(task, problem)
        _write_dictionaries(work, problem, subword)
        counts = {
            name: _write_split(work, name, problem, subword, options.workers)
            for name in sorted(problem.splits, key=lambda split: split == "train")
        }
        verify_folder(work.folder)
        for split in problem.splits.values():
            if split.malformed.skipped:
                print(f"{split.malformed.where}: left out {split.malformed.sentence()}")
        return {
            **settings,
            "labels": problem.labels or [],
            "regression": problem.labels is None,
            "target_scale": problem.target_scale,
            "pairs": len(problem.inputs) > 1,
            "splits": {name: counts[name]["examples"] for name in problem.splits},
            "counts": {name: counts[name] for name in problem.splits},
            "truncation": RULE,
            "malformed": {
                name: split.malformed.record() for name, split in problem.splits.items()
            },
        }

    publish(dest, settings, REPORT, options.overwrite, make)


def _is_labelled(split: LabelledSplit) -> bool:
    return all(example.label is not None for example in split.examples)


def _require_examples(task: str, problem: Problem) -> None:
    for name, split in problem.splits.items():
        if not split.examples:
            raise ValueError(f"{task} {name}: {split.malformed.where}: no example")
        unlabelled = [each.line for each in split.examples if each.label is None]
        if 0 < len(unlabelled) < len(split.examples):
            raise ValueError(
                f"{split.malformed.where}, line {unlabelled[0]}: no label, but other "
                "lines have one; allowed are all or none"
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
    split = problem.splits[name]
    counts = _write_inputs(work, name, problem, subword, workers)
    if _is_labelled(split):
        labels = [str(example.label) for example in split.examples]
        if problem.labels is None:
            targets = [f"{float(x) / problem.target_scale}\n" for x in labels]
            work.file(f"label/{name}.label").write_text("".join(targets))
        else:
            _write_labels(work, f"label/{name}", problem.labels, labels)
            found = Counter(labels)
            counts["labels"] = {label: found[label] for label in problem.labels}
    _write_table(work.file(f"{name}.tsv"), split.examples)
    return counts


def _write_inputs(
    work: Work, name: str, problem: Problem, subword: Subword, workers: int
) -> dict[str, Any]:
    import torch
    from tqdm import tqdm

    split = problem.splits[name]
    builders = [
        ids_builder(work, f"{part}/{name}", len(subword.dictionary))
        for part in problem.inputs
    ]
    counts = {"examples": 0, "tokens": 0, "unknown": 0, "truncated": 0}
    texts = ((example.text, example.pair) for example in split.examples)
    bar = tqdm(total=len(split.examples), unit=" examples", desc=name, disable=None)
    with bar:
        for encoded in map_batches(PairEncoder(subword.encoder), texts, workers):
            batch, truncated = fitting(encoded, subword.max_positions)
            columns = [batch.texts, batch.pairs] if batch.pairs else [batch.texts]
            for builder, column in zip(builders, columns, strict=True):
                for place, sentence in reserved_words(column, subword.dictionary):
                    line = split.examples[counts["examples"] + place].line
                    raise ValueError(
                        f"{split.malformed.where}, line {line}: {sentence}"
                    )
                for ids in column:
                    builder.add_item(torch.from_numpy(ids))
                    counts["tokens"] += len(ids)
                    counts["unknown"] += int((ids == UNKNOWN_ID).sum())
            counts["examples"] += len(batch.texts)
            counts["truncated"] += truncated
            bar.update(len(batch.texts))
    for builder, part in zip(builders, problem.inputs, strict=True):
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


def _write_table(path: Path, examples: list[Example]) -> None:
    """Columns that tabs set apart; nothing is quoted, and no text has a tab."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(COLUMNS) + "\n")
        for example in examples:
            fields = (example.index, example.text, example.pair, example.label)
            file.write("\t".join(field or "" for field in fields) + "\n")
