"""Labelled texts as fairseq's sentence_prediction reads them.

A folder has input0, input1 (pairs only) and label, each with the splits' files, and
beside them a readable table of each split. Class numbers are positions in the list of
labels, whatever the labels' frequencies.
"""

import math
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairseq_transnormer.data import REPORT
from fairseq_transnormer.data.subword_files import MASK, SPECIAL

from ..folders.binary_folder import Counts, fairseq_data, load_dictionary, write_ids
from ..folders.encoders import EOS_ID
from ..folders.options import Place
from ..folders.parallel import map_batches, shown
from ..folders.staging import Record, Work, publish
from .labelled_tables import LabelledSplit
from .subword import Subword
from .truncation import Columns, PairEncoder, fitting

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
        _check(problem)
        _write_dictionaries(work, problem, subword)
        counts = {
            name: _write_split(work, name, problem, subword, workers)
            for name in sorted(splits, key=lambda split: split == "train")
        }
        for split in splits.values():
            if split.skipped:
                print(f"{split.where}: left out {split.left_out()}")
        return {
            "task": task,
            "max_positions": subword.max_positions,
            "labels": problem.labels or [],
            "regression": problem.labels is None,
            "target_scale": problem.target_scale,
            "splits": {name: counts[name]["examples"] for name in splits},
            "counts": {name: counts[name] for name in splits},
            "malformed": {
                name: {"skipped": split.skipped, "reasons": split.reasons}
                for name, split in splits.items()
            },
        }

    publish(place, settings, REPORT, make)


def _check(problem: Problem) -> None:
    """Raise ValueError for splits without examples, and labels that are not allowed."""
    labels = problem.labels
    for split in problem.splits.values():
        split.require_good()
        has_labels = any(example.label is not None for example in split.examples)
        for example in split.examples if has_labels else ():
            where = f"{split.where}, line {example.line}"
            if example.label is None:
                raise ValueError(f"{where}: no label, but other lines have one")
            if labels is None and not _is_number(example.label):
                raise ValueError(f"{where}: {example.label!r}; allowed are numbers")
            most = problem.target_scale
            if most != 1 and not 0 <= float(example.label) <= most:
                raise ValueError(f"{where}: {example.label}; allowed: 0 to {most:g}")
            if labels is not None and example.label not in labels:
                raise ValueError(
                    f"{where}: {example.label!r}; allowed are {', '.join(labels)}"
                )
    if labels is not None and len(set(labels)) < max(2, len(labels)):
        raise ValueError(f"allowed are two or more different labels, got {labels}")
    reserved = sorted({*SPECIAL, MASK}.intersection(labels or []))
    if reserved:
        raise ValueError(f"label {reserved[0]!r}: a symbol of fairseq's")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


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
) -> Counts:
    examples = problem.splits[name].examples
    counts = _write_inputs(work, name, problem, subword, workers)
    labels = [each.label for each in examples if each.label is not None]
    if labels and problem.labels is None:
        targets = [f"{float(x) / problem.target_scale}\n" for x in labels]
        work.file(f"label/{name}.label").write_text("".join(targets))
    elif labels:
        dictionary = load_dictionary(work.folder / "label/dict.txt")
        rows = [np.array([dictionary.index(x), EOS_ID], np.int32) for x in labels]
        write_ids(work, f"label/{name}", [rows], dictionary)
    # tabs set columns apart; nothing is quoted, and no text has a tab
    rows = [(each.index, each.text, each.pair, each.label) for each in examples]
    lines = ["\t".join(field or "" for field in row) + "\n" for row in (HEADER, *rows)]
    table = work.file(f"{name}.tsv")
    table.write_text("".join(lines), encoding="utf-8", newline="\n")
    return counts


def _write_inputs(
    work: Work, name: str, problem: Problem, subword: Subword, workers: int
) -> Counts:
    split = problem.splits[name]
    counts = Counter(examples=len(split.examples), truncated=0)
    texts = [(example.text, example.pair) for example in split.examples]
    columns: Columns = [[] for _ in problem.inputs]
    encoder = PairEncoder(subword.encoder)
    for encoded in map_batches(encoder, shown(texts, name), workers):
        cut, truncated = fitting(encoded, subword.max_positions)
        counts["truncated"] += truncated
        for column, ids in zip(columns, cut, strict=True):
            column += ids

    def where(number: int) -> str:
        return f"{split.where}, line {split.examples[number].line}"

    for part, column in zip(problem.inputs, columns, strict=True):
        found = write_ids(work, f"{part}/{name}", [column], subword.dictionary, where)
        counts.update(tokens=found["tokens"], unknown=found["unknown"])
    return dict(counts)
