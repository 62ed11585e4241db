"""Prepares GLUE for fine-tuning with fairseq's sentence_prediction.

Without TASK: the six tasks of the paper's Table 5. All: MNLI, QNLI, QQP, SST-2, MRPC,
CoLA, RTE, STS-B. The text is encoded with the subword units and the dictionary of the
pre-trained model, which --checkpoint finds where it was trained, or --data names.

DIR/TASK gets input0, input1 (pairs) and label, each with the splits train, valid and
test; MNLI's mismatched ones are valid1 and test1. A label's number is its place in
GLUE's own list. STS-B's scores are divided by 5. Beside them are train.tsv and so on
(index, text, pair, label), the subword files, and report.json with counts, checksums
and the lines that were left out: those with too many or too few columns, an empty text
or no gold label; in a test split, which needs an answer to each example, such a line is
an error. Pairs that are too long are cut, longest first.
"""

import argparse
from pathlib import Path

from data_prep.folders.arguments import (
    add_destination,
    add_other_sizes,
    add_workers,
    command_parser,
)
from data_prep.folders.errors import InputError, run_command
from data_prep.labelled_texts.glue_source import Source, hub_source, local_source
from data_prep.labelled_texts.glue_tasks import TABLE_5, GlueTask, find_task
from data_prep.labelled_texts.labelled_examples import LabelledSplit
from data_prep.labelled_texts.labelled_folder import Problem, prepare_labelled_folder
from data_prep.labelled_texts.subword import Subword, add_subword_options, find_subword

# QQP's broken lines are counted one way or another
SIZE_TOLERANCE = 0.001


def _read(source: Source, task: GlueTask, other_sizes: bool) -> Problem:
    splits: dict[str, LabelledSplit] = {}
    for split in task.splits:
        splits[split] = source.read(split)
        if not other_sizes:
            _require_size(task, split, splits[split])
    labels = list(task.labels) if task.labels else None
    return Problem(splits, labels, task.target_scale)


def _require_size(task: GlueTask, split: str, content: LabelledSplit) -> None:
    expected, found = task.sizes[split], len(content.examples)
    if abs(found + content.malformed.skipped - expected) > expected * SIZE_TOLERANCE:
        raise InputError(
            f"{task.name} {split}: {content.malformed.where}: {found:,} examples, "
            f"expected {expected:,}; the copy is truncated or another one "
            "(--allow-other-sizes for a cut-down copy)"
        )


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("glue", __doc__)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="see above")
    add_destination(parser)
    parser.add_argument(
        "--from-dir",
        type=Path,
        metavar="SRC",
        help="local copy with a folder for each task: the original TSV files, datasets "
        "saved with save_to_disk, or the hub's parquet files (default: the Hugging "
        "Face hub)",
    )
    add_subword_options(parser)
    add_other_sizes(parser, "the published numbers of examples")
    add_workers(parser)
    options = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _prepare(options))


def _prepare(options: argparse.Namespace) -> None:
    tasks = [find_task(name) for name in options.tasks or TABLE_5]
    subword = find_subword(options)
    for task in tasks:
        _prepare_task(task, subword, len(tasks) == 1, options)


def _prepare_task(
    task: GlueTask, subword: Subword, alone: bool, options: argparse.Namespace
) -> None:
    if options.from_dir:
        source = local_source(options.from_dir, task, alone)
    else:
        source = hub_source(task)
    prepare_labelled_folder(
        options.dest / task.name,
        task.name,
        source.identity,
        lambda: _read(source, task, options.allow_other_sizes),
        subword,
        options.workers,
        options.overwrite,
    )
