"""Prepares your own labelled texts for fine-tuning, as data_prep glue does GLUE.

The files are *.tsv (a header, nothing quoted), *.csv (a header, double quotes) or
*.jsonl (an object a line). One text or two are classified into the labels of the train
split, or given a number with --regression. The text is encoded with the subword units
and the dictionary of the pre-trained model, which --checkpoint finds where it was
trained, or --data names.

DIR gets input0, input1 (pairs) and label, with the splits' files, train.tsv and so on
(index, text, pair, label), the subword files, and report.json with counts and
checksums. A label's number is its place in --labels or, by default, in the sorted
list of the train split's labels. Texts that are too long are cut, of a pair the longer
first.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from data_prep.folders.command import add_destination, add_workers, command
from data_prep.labelled_texts.labelled_examples import LabelledSplit
from data_prep.labelled_texts.labelled_folder import Problem, prepare_labelled_folder
from data_prep.labelled_texts.labelled_tables import Columns, read_table
from data_prep.labelled_texts.subword import add_subword_options, find_subword
from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.fingerprints import file_sha256


def _read(files: dict[str, Path], options: argparse.Namespace) -> Problem:
    columns = Columns(options.text_column, options.pair_column, options.label_column)
    splits = {
        split: read_table(
            path,
            columns,
            split != "test",
            options.skip_malformed,
            one_type=not options.regression,
        )
        for split, path in files.items()
    }
    if options.regression:
        _require(splits, columns, _is_number, "numbers (--regression)")
        return Problem(splits, None)
    labels = options.labels or _sorted_labels(splits["train"])
    if len(labels) < 2:
        raise ValueError(
            f"{files['train']}: column {columns.label!r}: one label, {labels[0]!r}; "
            "allowed are two or more"
        )
    _require(splits, columns, labels.__contains__, ", ".join(labels))
    return Problem(splits, labels)


def _sorted_labels(train: LabelledSplit) -> list[str]:
    """Whole numbers by their value, other labels by their characters."""
    labels = {example.label for example in train.examples}
    if not labels:
        raise ValueError(f"{train.malformed.where}: no example")
    if all(label.isdecimal() for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


def _require(
    splits: dict[str, LabelledSplit],
    columns: Columns,
    is_good: Callable[[str], bool],
    allowed: str,
) -> None:
    for split in splits.values():
        for example in split.examples:
            if example.label is not None and not is_good(example.label):
                raise ValueError(
                    f"{split.malformed.where}, line {example.line}: column "
                    f"{columns.label!r}: {example.label!r}; allowed are {allowed}"
                )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_destination(parser)
    add = parser.add_argument
    file = {"type": Path, "metavar": "FILE"}
    add("--train", required=True, help="of the train split", **file)
    add("--valid", required=True, help="of the valid split", **file)
    add("--test", help="of the test split; its labels may be absent", **file)
    add("--text-column", default="text", metavar="NAME", help="(default: text)")
    add("--pair-column", metavar="NAME", help="the second text of a pair")
    add("--label-column", default="label", metavar="NAME", help="(default: label)")
    add("--labels", nargs="+", metavar="LABEL", help="all labels, in the order wanted")
    add("--regression", action="store_true", help="the labels are numbers to predict")
    add(
        "--skip-malformed",
        action="store_true",
        help="leave out and count lines that are no example, up to 1 in 100",
    )
    add("--name", help="name of the problem in reports (default: that of DIR)")
    add_subword_options(parser)
    add_workers(parser)


def _prepare(options: argparse.Namespace) -> None:
    labels = options.labels
    if labels and options.regression:
        raise ValueError("--labels: not with --regression")
    if labels and len(set(labels)) < max(2, len(labels)):
        raise ValueError("--labels: allowed are two or more different labels")
    files = {
        split: getattr(options, split) for split in SPLITS if getattr(options, split)
    }
    source = {
        "files": {
            split: {"name": path.name, "sha256": file_sha256(path)}
            for split, path in files.items()
        },
        "columns": [options.text_column, options.pair_column, options.label_column],
        "labels": labels,
        "regression": options.regression,
        "skip_malformed": options.skip_malformed,
    }
    prepare_labelled_folder(
        options,
        options.dest,
        options.name or options.dest.resolve().name,
        source,
        lambda: _read(files, options),
        find_subword(options),
    )


main = command("classification", __doc__, _add_options, _prepare)
