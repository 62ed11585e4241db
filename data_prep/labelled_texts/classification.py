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
from pathlib import Path

from data_prep.folders.arguments import add_destination, add_workers, command_parser
from data_prep.folders.errors import InputError, run_command
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
        _require_numbers(splits, columns)
        return Problem(splits, None)
    labels = options.labels or _sorted_labels(splits["train"])
    if len(labels) < 2:
        raise InputError(
            f"{files['train']}: column {columns.label!r}: one label, {labels[0]!r}; "
            "allowed are two or more"
        )
    _require_labels(splits, columns, labels)
    return Problem(splits, labels)


def _sorted_labels(train: LabelledSplit) -> list[str]:
    """Whole numbers by their value, other labels by their characters."""
    labels = {example.label for example in train.examples}
    if not labels:
        raise InputError(f"{train.malformed.where}: no example")
    if all(label.isdecimal() for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


def _require_labels(
    splits: dict[str, LabelledSplit], columns: Columns, labels: list[str]
) -> None:
    for split in splits.values():
        for example in split.examples:
            if example.label is not None and example.label not in labels:
                place = f"{split.malformed.where}, line {example.line}"
                raise InputError(
                    f"{place}: column {columns.label!r}: label {example.label!r}; "
                    f"allowed are {', '.join(labels)}"
                )


def _require_numbers(splits: dict[str, LabelledSplit], columns: Columns) -> None:
    for split in splits.values():
        for example in split.examples:
            try:
                good = example.label is None or math.isfinite(float(example.label))
            except ValueError:
                good = False
            if not good:
                place = f"{split.malformed.where}, line {example.line}"
                raise InputError(
                    f"{place}: column {columns.label!r}: {example.label!r}; "
                    "allowed are numbers (--regression)"
                )


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("classification", __doc__)
    add_destination(parser)
    add = parser.add_argument
    for split in SPLITS:
        help_text = f"file of the {split} split"
        help_text += "; its labels may be absent" if split == "test" else ""
        needed = split != "test"
        add(f"--{split}", type=Path, required=needed, metavar="FILE", help=help_text)
    add("--text-column", default="text", metavar="NAME", help="(default: %(default)s)")
    add("--pair-column", metavar="NAME", help="the second text of a pair")
    add(
        "--label-column", default="label", metavar="NAME", help="(default: %(default)s)"
    )
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
    options = parser.parse_args(arguments)
    if options.labels and options.regression:
        parser.error("argument --labels: not with --regression")
    if options.labels and len(set(options.labels)) < max(2, len(options.labels)):
        parser.error("argument --labels: allowed are two or more different labels")
    return run_command(parser.prog, lambda: _prepare(options))


def _prepare(options: argparse.Namespace) -> None:
    files = {
        split: getattr(options, split) for split in SPLITS if getattr(options, split)
    }
    for split, path in files.items():
        if not path.is_file():
            raise InputError(f"--{split} {path}: no such file")
    source = {
        "files": {
            split: {"name": path.name, "sha256": file_sha256(path)}
            for split, path in files.items()
        },
        "columns": [options.text_column, options.pair_column, options.label_column],
        "labels": options.labels,
        "regression": options.regression,
        "skip_malformed": options.skip_malformed,
    }
    prepare_labelled_folder(
        options.dest,
        options.name or options.dest.resolve().name,
        source,
        lambda: _read(files, options),
        find_subword(options),
        options.workers,
        options.overwrite,
    )
