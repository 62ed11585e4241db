"""Labelled texts as fairseq's sentence_prediction reads them.

A folder has input0, input1 (pairs only) and label, each with the splits' files, and
beside them a readable table of each split. Class numbers are positions in the list of
labels, whatever the labels' frequencies.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.folders.encoders import EOS_ID, SPECIAL_COUNT, UNKNOWN_ID
from data_prep.folders.errors import InputError
from data_prep.folders.fairseq_format import fairseq_data, reserved_words
from data_prep.folders.parallel import map_batches
from data_prep.folders.report import file_records, software
from data_prep.folders.staging import Staging
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


def prepare_labelled_folder(
    dest: Path,
    task: str,
    source: dict[str, Any],
    read: Callable[[], Problem],
    subword: Subword,
    workers: int,
    overwrite: bool,
) -> None:
    """Makes ``dest`` of what ``read`` returns, unless it is there already."""
    settings = {
        "task": task,
        "source": source,
        "subword": subword.record(),
        "max_positions": subword.max_positions,
    }
    staging = Staging(dest, settings, REPORT, overwrite)
    if staging.is_complete():
        return
    with staging:
        folder = staging.folder
        problem = read()
        _require_examples(task, problem)
        staging.expect(_dictionaries(problem, subword))
        _write_dictionaries(folder, problem, subword)
        counts = {}
        for name in sorted(problem.splits, key=lambda split: split == "train"):
            counts[name] = staging.stage(
                f"{task} {name}",
                _outputs(name, problem),
                lambda name=name: _write_split(folder, name, problem, subword, workers),
            )
        verify_folder(folder)
        report = {
            **settings,
            "settings": settings,
            "labels": problem.labels or [],
            "regression": problem.labels is None,
            "target_scale": problem.target_scale,
            "pairs": _has_pairs(problem),
            "splits": {name: counts[name]["examples"] for name in problem.splits},
            "counts": {name: counts[name] for name in problem.splits},
            "truncation": RULE,
            "malformed": {
                name: split.malformed.record() for name, split in problem.splits.items()
            },
            "files": file_records(folder, staging.files()),
            "software": software(),
        }
        staging.write_report(report)
        staging.publish()
    _print(dest, report, problem)


def _has_pairs(problem: Problem) -> bool:
    return problem.splits["train"].examples[0].pair is not None


def _is_labelled(split: LabelledSplit) -> bool:
    return all(example.label is not None for example in split.examples)


def _require_examples(task: str, problem: Problem) -> None:
    for name, split in problem.splits.items():
        if not split.examples:
            raise InputError(f"{task} {name}: {split.malformed.where}: no example")
        unlabelled = [each.line for each in split.examples if each.label is None]
        if 0 < len(unlabelled) < len(split.examples):
            raise InputError(
                f"{split.malformed.where}, line {unlabelled[0]}: no label, but other "
                "lines have one; allowed are all or none"
            )
    reserved = {*SPECIAL, MASK}
    for label in problem.labels or []:
        if label in reserved:
            raise InputError(
                f"{task}: label {label!r}: a symbol of fairseq's; allowed is any text "
                f"but {', '.join(sorted(reserved))}"
            )


def _inputs(problem: Problem) -> list[str]:
    return ["input0", "input1"] if _has_pairs(problem) else ["input0"]


def _outputs(split: str, problem: Problem) -> list[str]:
    names = [f"{part}/{split}" for part in _inputs(problem)]
    labelled = _is_labelled(problem.splits[split])
    if labelled and problem.labels is not None:
        names.append(f"label/{split}")
    files = [f"{name}.{suffix}" for name in names for suffix in ("bin", "idx")]
    if labelled and problem.labels is None:
        files.append(f"label/{split}.label")
    return [*files, f"{split}.tsv"]


def _dictionaries(problem: Problem, subword: Subword) -> list[str]:
    names = [f"{part}/dict.txt" for part in [*_inputs(problem), "label"]]
    return [*names, *(path.name for path in subword.files)]


def _write_dictionaries(folder: Path, problem: Problem, subword: Subword) -> None:
    for part in _inputs(problem):
        (folder / part).mkdir(exist_ok=True)
        shutil.copyfile(subword.dictionary_path, folder / part / "dict.txt")
    for path in subword.files:
        shutil.copyfile(path, folder / path.name)
    (folder / "label").mkdir(exist_ok=True)
    if problem.labels is not None:
        dictionary = fairseq_data().Dictionary()
        for label in problem.labels:
            dictionary.add_symbol(label)
        dictionary.save(str(folder / "label" / "dict.txt"))


def _write_split(
    folder: Path, name: str, problem: Problem, subword: Subword, workers: int
) -> dict[str, Any]:
    split = problem.splits[name]
    counts = _write_inputs(folder, name, problem, subword, workers)
    if _is_labelled(split):
        if problem.labels is None:
            _write_targets(folder / "label" / f"{name}.label", problem, split)
        else:
            _write_labels(folder / "label" / name, problem.labels, split)
            found = Counter(example.label for example in split.examples)
            counts["labels"] = {label: found[label] for label in problem.labels}
    _write_table(folder / f"{name}.tsv", split.examples)
    return counts


def _write_inputs(
    folder: Path, name: str, problem: Problem, subword: Subword, workers: int
) -> dict[str, Any]:
    from tqdm import tqdm

    examples = problem.splits[name].examples
    builders = [
        _builder(folder / part / name, len(subword.dictionary))
        for part in _inputs(problem)
    ]
    counts = {"examples": 0, "tokens": 0, "unknown": 0, "truncated": 0}
    work = PairEncoder(subword.encoder)
    texts = ((example.text, example.pair) for example in examples)
    bar = tqdm(total=len(examples), unit=" examples", desc=name, disable=None)
    with bar:
        for encoded in map_batches(work, texts, workers):
            batch, truncated = fitting(encoded, subword.max_positions)
            columns = [batch.texts, batch.pairs] if batch.pairs else [batch.texts]
            for builder, column in zip(builders, columns, strict=True):
                for place, sentence in reserved_words(column, subword.dictionary):
                    line = examples[counts["examples"] + place].line
                    where = problem.splits[name].malformed.where
                    raise InputError(f"{where}, line {line}: {sentence}")
                for ids in column:
                    _add(builder, ids)
                counts["tokens"] += sum(map(len, column))
                counts["unknown"] += sum(
                    int((ids == UNKNOWN_ID).sum()) for ids in column
                )
            counts["examples"] += len(batch.texts)
            counts["truncated"] += truncated
            bar.update(len(batch.texts))
    for builder, part in zip(builders, _inputs(problem), strict=True):
        builder.finalize(str(folder / part / f"{name}.idx"))
    return counts


def _write_labels(path: Path, labels: list[str], split: LabelledSplit) -> None:
    builder = _builder(path, SPECIAL_COUNT + len(labels))
    ids = {label: SPECIAL_COUNT + place for place, label in enumerate(labels)}
    for example in split.examples:
        _add(builder, np.array([ids[example.label], EOS_ID], dtype=np.int32))
    builder.finalize(f"{path}.idx")


def _write_targets(path: Path, problem: Problem, split: LabelledSplit) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for example in split.examples:
            file.write(f"{float(example.label) / problem.target_scale}\n")


def _write_table(path: Path, examples: list[Example]) -> None:
    """Columns that tabs set apart; nothing is quoted, and no text has a tab."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(COLUMNS) + "\n")
        for example in examples:
            fields = (example.index, example.text, example.pair, example.label)
            file.write("\t".join(field or "" for field in fields) + "\n")


def _builder(path: Path, vocabulary: int) -> Any:
    return fairseq_data().indexed_dataset.make_builder(
        f"{path}.bin", impl="mmap", vocab_size=vocabulary
    )


def _add(builder: Any, ids: np.ndarray) -> None:
    import torch

    builder.add_item(torch.from_numpy(ids))


def _print(dest: Path, report: dict[str, Any], problem: Problem) -> None:
    what = "numbers" if report["regression"] else ", ".join(report["labels"])
    print(f"{dest}: {what}; {report['subword']['kind']}")
    for name, counts in report["counts"].items():
        numbers = ", ".join(
            f"{counts[key]:,} {key}" for key in ("examples", "tokens", "truncated")
        )
        print(f"  {name}: {numbers}")
        malformed = problem.splits[name].malformed
        if malformed.skipped:
            print(f"    {malformed.where}: left out {malformed.sentence()}")
