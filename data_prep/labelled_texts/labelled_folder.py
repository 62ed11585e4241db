"""Labelled texts as fairseq's sentence_prediction reads them.

A folder has input0, input1 (pairs only) and label, each with the splits' files, and
beside them a readable table of each split. Class numbers are positions in the list of
labels, whatever the labels' frequencies.

The model reads ``<s> text </s>``, or ``<s> text </s> </s> pair </s>``: fairseq's
sentence_prediction puts the first symbol and the separator in front. Of what is too
long, tokens are taken from the end of the longer text, of the second if both are
equally long.
"""

import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_transnormer.data import REPORT
from fairseq_transnormer.data.labelled_texts import kept_lengths
from fairseq_transnormer.data.subword_files import EOS, MASK, SPECIAL

from ..folders.binary_folder import (
    Counts,
    load_dictionary,
    symbol_dictionary,
    write_ids,
)
from ..folders.options import Place
from ..folders.parallel import map_batches, shown
from ..folders.staging import Record, Work, publish
from .labelled_tables import LabelledSplit
from .subword import Subword

# of the tables
HEADER = ("index", "text", "pair", "label")
# the ids of each example's text, and of its pair where there are pairs
Columns = Sequence[Sequence[np.ndarray]]


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
        texts = self.splits["train"].examples[0].texts
        return [f"input{number}" for number in range(len(texts))]


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
    labels = problem.labels or []
    for split in problem.splits.values():
        split.require_good()
        has_labels = any(example.label is not None for example in split.examples)
        for example in split.examples if has_labels else ():
            if fault := _fault(example.label, problem):
                raise ValueError(f"{split.where}, line {example.line}: {fault}")
    if problem.labels is not None and len({*labels}) < max(2, len(labels)):
        raise ValueError(f"allowed are two or more different labels, got {labels}")
    for label in sorted({*SPECIAL, MASK}.intersection(labels)):
        raise ValueError(f"label {label!r}: a symbol of fairseq's")


def _fault(label: str | None, problem: Problem) -> str:
    """What is wrong with a label of a split that has them."""
    if label is None:
        return "no label, but other lines have one"
    if problem.labels is not None:
        allowed = f"{label!r}; allowed are {', '.join(problem.labels)}"
        return "" if label in problem.labels else allowed
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        return f"{label!r}; allowed are numbers"
    most = problem.target_scale
    return "" if most == 1 or 0 <= value <= most else f"{label}; allowed: 0 to {most:g}"


def _write_dictionaries(work: Work, problem: Problem, subword: Subword) -> None:
    for part in problem.inputs:
        shutil.copyfile(subword.dictionary_path, work.file(f"{part}/dict.txt"))
    for path in subword.files:
        shutil.copyfile(path, work.file(path.name))
    if problem.labels is not None:
        labels = symbol_dictionary(problem.labels, multiple=1)
        labels.save(str(work.file("label/dict.txt")))


def _write_split(
    work: Work, name: str, problem: Problem, subword: Subword, workers: int
) -> Counts:
    split = problem.splits[name]
    columns, examples = [], split.examples
    for texts in zip(*(example.texts for example in examples), strict=True):
        batches = map_batches(subword.encoder, shown(texts, name), workers)
        columns.append([ids for batch in batches for ids in batch])
    cut, truncated = fitting(columns, subword.max_positions)
    counts = Counter(examples=len(examples), truncated=truncated)

    def where(number: int) -> str:
        return f"{split.where}, line {examples[number].line}"

    for part, column in zip(problem.inputs, cut, strict=True):
        found = write_ids(work, f"{part}/{name}", [column], subword.dictionary, where)
        counts.update(tokens=found["tokens"], unknown=found["unknown"])
    labels = [each.label for each in examples if each.label is not None]
    if labels and problem.labels is None:
        targets = [f"{float(x) / problem.target_scale}\n" for x in labels]
        work.file(f"label/{name}.label").write_text("".join(targets))
    elif labels:
        dictionary = load_dictionary(work.folder / "label/dict.txt")
        rows = [np.array([dictionary.index(x), EOS], np.int32) for x in labels]
        write_ids(work, f"label/{name}", [rows], dictionary)
    # tabs set columns apart; nothing is quoted, and no text has a tab
    rows = [(x.index, *[*x.texts, ""][:2], x.label or "") for x in examples]
    lines = ["\t".join(row) + "\n" for row in (HEADER, *rows)]
    table = work.file(f"{name}.tsv")
    table.write_text("".join(lines), encoding="utf-8", newline="\n")
    return dict(counts)


def fitting(columns: Columns, max_positions: int) -> tuple[Columns, int]:
    """Texts cut to ``max_positions`` an example, and how many examples were cut."""
    room = max_positions - 2 * len(columns)
    cut, truncated = [], 0
    for ids in zip(*columns, strict=True):
        lengths = [len(each) - 1 for each in ids]
        # a single text has an empty pair
        kept = [*kept_lengths(*[*lengths, 0][:2], room)][: len(ids)]
        cut.append([_cut(*each) for each in zip(ids, kept, strict=True)])
        truncated += kept != lengths
    return [*zip(*cut, strict=True)], truncated


def _cut(ids: np.ndarray, length: int) -> np.ndarray:
    if len(ids) == length + 1:
        return ids
    return np.append(ids[:length], np.int32(EOS))
