"""``data_prep glue``: GLUE for fine-tuning with fairseq's sentence_prediction.

A task is read from the hub's rows, or from the tab-separated files that it was first
published as. CoLA's labelled files have no header. Tabs and line breaks in questions
break lines of QQP, which are left out. MRPC comes as files of Microsoft's with the ids
of the dev examples apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import tyro

from fairseq_transnormer.data.fingerprints import file_sha256

from ..folders.hub import LABEL, WAY_OUT, HubData, Loaded, load
from ..folders.options import CORES, Place, Source, Workers
from .labelled_folder import Problem, prepare_labelled_folder
from .labelled_tables import LabelledSplit, columns_of, tab_separated
from .subword import Pretrained, find_subword

HUB_DATA = HubData("nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c")
HIDDEN_LABEL = -1
# MNLI's, where the annotators did not agree
NO_GOLD_LABEL = "-"
# QQP's broken lines are counted one way or another
SIZE_TOLERANCE = 0.001
COLA_HEADER = ["source", "label", "mark", "sentence"]
MSR_FILES = {
    "train": "msr_paraphrase_train.txt",
    "valid": "dev_ids.tsv",
    "test": "msr_paraphrase_test.txt",
}
# our name of a split: the hub's, and that of the original file
USUAL_SPLITS = {
    "train": ("train", "train"),
    "valid": ("validation", "dev"),
    "test": ("test", "test"),
}
MNLI_SPLITS = {
    "train": ("train", "train"),
    "valid": ("validation_matched", "dev_matched"),
    "valid1": ("validation_mismatched", "dev_mismatched"),
    "test": ("test_matched", "test_matched"),
    "test1": ("test_mismatched", "test_mismatched"),
}


@dataclass(frozen=True)
class GlueTask:
    """One task. Columns of texts are (hub's name, original's name).

    ``label`` is the original's column, the hub's is "label". ``labels`` is in the order
    of the class numbers and in the form of a submission; None means numbers from 0 to
    ``target_scale``. ``hub_labels`` are the hub's names where it calls them otherwise.
    ``counts`` are the published numbers of examples, by split.
    """

    name: str
    config: str
    text: tuple[str, str]
    pair: tuple[str, str] | None
    label: str
    labels: tuple[str, ...] | None
    counts: tuple[int, ...]
    splits: Mapping[str, tuple[str, str]] = field(default_factory=USUAL_SPLITS.copy)
    hub_labels: tuple[str, ...] | None = None
    target_scale: float = 1.0


_SENTENCE = ("sentence", "sentence")
_PAIR = (("sentence1", "sentence1"), ("sentence2", "sentence2"))
_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")

TASKS = {
    task.name: task
    for task in (
        GlueTask(
            *("MNLI", "mnli", ("premise", "sentence1"), ("hypothesis", "sentence2")),
            *("gold_label", ("entailment", "neutral", "contradiction")),
            (392_702, 9_815, 9_832, 9_796, 9_847),
            MNLI_SPLITS,
        ),
        GlueTask(
            *("QNLI", "qnli", ("question", "question"), _SENTENCE, "label"),
            *(_ENTAILMENT, (104_743, 5_463, 5_463)),
        ),
        GlueTask(
            *("QQP", "qqp", ("question1", "question1"), ("question2", "question2")),
            *("is_duplicate", _BINARY, (363_846, 40_430, 390_965)),
            hub_labels=("not_duplicate", "duplicate"),
        ),
        GlueTask(
            *("SST-2", "sst2", _SENTENCE, None, "label", _BINARY),
            (67_349, 872, 1_821),
            hub_labels=("negative", "positive"),
        ),
        GlueTask(
            *("MRPC", "mrpc", ("sentence1", "#1 String"), ("sentence2", "#2 String")),
            *("Quality", _BINARY, (3_668, 408, 1_725)),
            hub_labels=("not_equivalent", "equivalent"),
        ),
        GlueTask(
            *("CoLA", "cola", _SENTENCE, None, "label", _BINARY),
            (8_551, 1_043, 1_063),
            hub_labels=("unacceptable", "acceptable"),
        ),
        GlueTask("RTE", "rte", *_PAIR, "label", _ENTAILMENT, (2_490, 277, 3_000)),
        GlueTask(
            *("STS-B", "stsb", *_PAIR, "score", None, (5_749, 1_500, 1_379)),
            target_scale=5.0,
        ),
    )
}
# the columns of the paper's Table 5; MNLI has two
TABLE_5 = ("MNLI", "QNLI", "QQP", "SST-2", "MRPC", "CoLA")

# what identifies a copy of a task, and the reader of its splits
TaskCopy = tuple[dict[str, Any], Callable[[str], LabelledSplit]]


def glue(
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[TASK ...]")] = (),
    /,
    *,
    place: Place,
    copy: Source,
    pretrained: Pretrained,
    workers: Workers = CORES,
) -> None:
    """Prepare GLUE for fine-tuning with fairseq's sentence_prediction.

    Without TASK: the six tasks of the paper's Table 5. All: MNLI, QNLI, QQP, SST-2,
    MRPC, CoLA, RTE, STS-B. They come from the Hugging Face hub, or from --from-dir. It
    has a folder for each task with the original TSV files or the hub's parquet files.
    The text is encoded with the subword units and the dictionary of the pre-trained
    model. --checkpoint finds them where it was trained, or --data names them.

    DIR/TASK gets input0, input1 (pairs) and label, each with the splits train, valid
    and test; MNLI's mismatched ones are valid1 and test1. Lines with too many or too
    few columns, an empty text or no gold label are skipped and counted. In a test split
    a malformed line is an error, since each example needs an answer. Pairs that are too
    long are cut, longest first.

    Args:
        tasks: to prepare.
    """
    unknown = [name for name in tasks if name not in TASKS]
    if unknown:
        raise ValueError(f"task {unknown[0]!r}: allowed are {', '.join(TASKS)}")
    subword = find_subword(pretrained)
    for task in map(TASKS.__getitem__, tasks or TABLE_5):
        identity, read_split = find_copy(copy.from_dir, task)
        prepare_labelled_folder(
            replace(place, dest=place.dest / task.name),
            task.name,
            identity,
            partial(_read, read_split, task, copy.allow_other_sizes),
            subword,
            workers,
        )


def find_copy(folder: Path | None, task: GlueTask) -> TaskCopy:
    """The task from the hub, or its copy in a subfolder of ``folder``."""
    places = [task.name, task.config]
    original = {split: f"{name}.tsv" for split, (_, name) in task.splits.items()}
    names = [original, MSR_FILES] if task.name == "MRPC" else [original]
    for place, every in product(places, names) if folder else ():
        files = {split: folder / place / name for split, name in every.items()}
        if files["train"].exists():
            identity = {path.name: file_sha256(path) for path in files.values()}
            return identity, partial(read_original, files, task)
    accepted = f"in {' or '.join(places)} {', '.join(original.values())} or "
    splits = [name for name, _ in task.splits.values()]
    loaded = load(HUB_DATA, folder, places, splits, task.config, accepted)
    return loaded.identity, partial(read_rows, loaded, task)


def read_rows(loaded: Loaded, task: GlueTask, name: str) -> LabelledSplit:
    """A split's examples as the hub has them.

    Raises ValueError where a copy numbers its classes otherwise than the hub.
    """
    stored = task.splits[name][0]
    features, classes = loaded.splits[stored].features, task.labels or ()
    split = LabelledSplit(f"{loaded.where}/{stored}", strict=False)
    numbered = getattr(features.get(LABEL), "names", None)
    if numbered and tuple(numbered) not in (classes, task.hub_labels):
        raise ValueError(
            f"{split.where}: classes must be, in this order, "
            f"{', '.join(task.hub_labels or classes)}; got {', '.join(numbered)}"
        )
    columns = [column[0] for column in (task.text, task.pair) if column]
    # every example of a test split needs a prediction
    needs = not name.startswith("test")
    rows = loaded.rows(stored, "idx", *columns, LABEL)
    for line, (index, *texts, label) in enumerate(rows, 1):
        label = dict(enumerate(classes)).get(label, label)
        # float32 of 3.8 is no 3.8
        label = f"{label:.6g}" if isinstance(label, float) else label
        known = None if label in (None, HIDDEN_LABEL, str(HIDDEN_LABEL)) else str(label)
        split.add(line, str(index), texts, known, needs, needs)
    return split


def read_original(files: dict[str, Path], task: GlueTask, name: str) -> LabelledSplit:
    """A split's examples in the original files.

    Malformed lines are counted. In a test split they are errors, since each example
    needs a prediction.
    """
    path, needs = files[name], not name.startswith("test")
    header = COLA_HEADER if task.name == "CoLA" and needs else None
    of_microsoft = needs and files["train"].name == MSR_FILES["train"]
    if of_microsoft:
        # their training file without the dev examples, or these alone
        ids = LabelledSplit(str(path), strict=True)
        rows = tab_separated(files["valid"], ids, ["#1", "#2"])
        dev = {tuple(row.values()) for _, row in rows}
        path = files["train"]
    split = LabelledSplit(f"{task.name}/{path.name}", strict=not needs)
    columns = [column[1] for column in (task.text, task.pair) if column]
    place = 0
    for line, row in tab_separated(path, split, header):
        if of_microsoft:
            is_dev = (row["#1 ID"], row["#2 ID"]) in dev
            if is_dev != (name == "valid"):
                continue
        wanted = [*columns, task.label] if needs else columns
        columns_of(row, wanted, str(path))
        label = row.get(task.label)
        known = None if label == NO_GOLD_LABEL else label
        index = row.get("index") or row.get("id") or str(place)
        split.add(line, index, [row[x] for x in columns], known, needs, needs)
        place += 1
    return split


def _read(
    read_split: Callable[[str], LabelledSplit], task: GlueTask, other_sizes: bool
) -> Problem:
    splits = {}
    for name, expected in zip(task.splits, task.counts, strict=True):
        split = splits[name] = read_split(name)
        read = len(split.examples)
        wrong = abs(read + split.skipped - expected) > expected * SIZE_TOLERANCE
        if wrong and not other_sizes:
            raise ValueError(
                f"{task.name} {name}: {split.where}: {read:,} examples, expected "
                f"{expected:,}; the copy is truncated or another one ({WAY_OUT})"
            )
    labels = list(task.labels) if task.labels else None
    return Problem(splits, labels, task.target_scale)
