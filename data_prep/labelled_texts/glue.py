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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from data_prep.folders.command import (
    add_destination,
    add_other_sizes,
    add_source,
    add_workers,
    command,
)
from data_prep.folders.hub import LABEL, HubData, Loaded, load_hub, load_parquet
from data_prep.labelled_texts.glue_originals import (
    original_files,
    read_original,
    require_label,
)
from data_prep.labelled_texts.glue_tasks import TABLE_5, GlueTask, find_task
from data_prep.labelled_texts.labelled_examples import (
    Example,
    LabelledSplit,
    Malformed,
)
from data_prep.labelled_texts.labelled_folder import Problem, prepare_labelled_folder
from data_prep.labelled_texts.subword import add_subword_options, find_subword
from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.texts import one_line_text

HUB_DATA = HubData("nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c")
HIDDEN_LABEL = -1
# QQP's broken lines are counted one way or another
SIZE_TOLERANCE = 0.001


@dataclass(frozen=True)
class Source:
    """The splits of a task, and what identifies it for the settings."""

    identity: dict[str, Any]
    read: Callable[[str], LabelledSplit]


def find_source(folder: Path | None, task: GlueTask, alone: bool) -> Source:
    """The task from the hub, or its copy in ``folder``.

    ``alone``: no other task is wanted, so that ``folder`` itself may be the task's.
    """
    places = [task.name, task.config, *(["."] if alone else [])]
    if folder is None:
        loaded = load_hub(HUB_DATA, task.config, places)
        return Source(loaded.identity, partial(read_rows, loaded, task))
    found = load_parquet(folder, places, [name for name, _ in task.splits.values()])
    if found is not None:
        return Source(found.identity, partial(read_rows, found, task))
    for place in places:
        files = original_files(folder / place, task)
        if files:
            identity = {path.name: file_sha256(path) for path in files.values()}
            return Source(identity, partial(read_original, files, task))
    names = ", ".join(f"{name}.tsv" for _, name in task.splits.values())
    raise ValueError(
        f"--from-dir {folder}: holds no copy of {task.name}; accepted are, in its "
        f"subfolder {' or '.join(places[:2])}, the original files ({names}) or the "
        "hub's parquet files"
    )


def read_rows(loaded: Loaded, task: GlueTask, split: str) -> LabelledSplit:
    """A split's examples as the hub has them."""
    name = task.splits[split][0]
    where = f"{loaded.where}/{name}"
    columns = [column[0] for column in (task.text, task.pair) if column]
    columns.append(LABEL)
    features = loaded.features(name, columns)
    _require_order(where, features[LABEL], task)
    indices = (index for (index,) in loaded.rows(name, "idx"))
    if "idx" not in features:
        indices = count()
    malformed = Malformed(where, allowed=True)
    examples: list[Example] = []
    line = 0
    for line, (index, fields) in enumerate(
        zip(indices, loaded.rows(name, *columns), strict=False), 1
    ):
        *texts, label = fields
        texts = [one_line_text(text or "") for text in texts]
        # every example of a test split needs a prediction
        if not all(texts) and not split.startswith("test"):
            malformed.skip(line, "an empty text")
        elif label in (None, HIDDEN_LABEL) and not split.startswith("test"):
            malformed.skip(line, f"the label {HIDDEN_LABEL}")
        else:
            label = _label(label, task, f"{where}, row {line}")
            pair = texts[1] if task.pair else None
            examples.append(Example(str(index), texts[0], pair, label, line))
    malformed.finish(line)
    return LabelledSplit(examples, malformed)


def _label(label: Any, task: GlueTask, where: str) -> str | None:
    if label is None or label == HIDDEN_LABEL:
        return None
    if isinstance(label, int) and task.labels and 0 <= label < len(task.labels):
        return task.labels[label]
    # float32 of 3.8 is no 3.8
    text = f"{label:.6g}" if isinstance(label, float) else str(label)
    require_label(where, text, task)
    return text


def _require_order(where: str, feature: Any, task: GlueTask) -> None:
    """A copy that numbers its classes otherwise must not be taken for the hub's."""
    names = getattr(feature, "names", None)
    if names is None or task.labels is None:
        return
    if tuple(names) not in (task.labels, task.hub_labels):
        raise ValueError(
            f"{where}: classes must be, in this order, "
            f"{', '.join(task.hub_labels or task.labels)}; got {', '.join(names)}"
        )


def _read(source: Source, task: GlueTask, other_sizes: bool) -> Problem:
    splits: dict[str, LabelledSplit] = {}
    for split, expected in task.sizes.items():
        splits[split] = source.read(split)
        malformed = splits[split].malformed
        found = len(splits[split].examples)
        wrong = abs(found + malformed.skipped - expected) > expected * SIZE_TOLERANCE
        if wrong and not other_sizes:
            raise ValueError(
                f"{task.name} {split}: {malformed.where}: {found:,} examples, expected "
                f"{expected:,}; the copy is truncated or another one "
                "(--allow-other-sizes for a cut-down copy)"
            )
    labels = list(task.labels) if task.labels else None
    return Problem(splits, labels, task.target_scale)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="see above")
    add_destination(parser)
    add_source(
        parser,
        "a folder for each task with the original TSV files or the hub's parquet files "
        "(default: the Hugging Face hub)",
    )
    add_subword_options(parser)
    add_other_sizes(parser, "the published numbers of examples")
    add_workers(parser)


def _prepare(options: argparse.Namespace) -> None:
    tasks = [find_task(name) for name in options.tasks or TABLE_5]
    subword = find_subword(options)
    for task in tasks:
        source = find_source(options.from_dir, task, len(tasks) == 1)
        prepare_labelled_folder(
            options,
            options.dest / task.name,
            task.name,
            source.identity,
            lambda source=source, task=task: _read(
                source, task, options.allow_other_sizes
            ),
            subword,
        )


main = command("glue", __doc__, _add_options, _prepare)
