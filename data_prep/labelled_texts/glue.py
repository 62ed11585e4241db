"""``data_prep glue``: GLUE for fine-tuning with fairseq's sentence_prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import tyro

from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.texts import one_line_text

from ..folders.hub import LABEL, WAY_OUT, HubData, Loaded, load_hub, load_parquet
from ..folders.options import CORES, Place, Source, Workers
from .glue_originals import original_files, read_original, require_label
from .glue_tasks import TABLE_5, GlueTask, find_task
from .labelled_examples import Example, LabelledSplit
from .labelled_folder import Problem, prepare_labelled_folder
from .subword import Pretrained, find_subword

HUB_DATA = HubData("nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c")
HIDDEN_LABEL = -1
# QQP's broken lines are counted one way or another
SIZE_TOLERANCE = 0.001


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
    MRPC, CoLA, RTE, STS-B. They come from the Hugging Face hub, or from --from-dir: a
    folder for each task with the original TSV files or the hub's parquet files. The
    text is encoded with the subword units and the dictionary of the pre-trained model,
    which --checkpoint finds where it was trained, or --data names.

    DIR/TASK gets input0, input1 (pairs) and label, each with the splits train, valid
    and test; MNLI's mismatched ones are valid1 and test1. Lines with too many or too
    few columns, an empty text or no gold label are skipped and counted. In a test split
    a malformed line is an error, since each example needs an answer. Pairs that are too
    long are cut, longest first.

    Args:
        tasks: to prepare.
    """
    chosen = [find_task(name) for name in tasks or TABLE_5]
    subword = find_subword(pretrained)
    for task in chosen:
        found = find_copy(copy.from_dir, task, len(chosen) == 1)
        prepare_labelled_folder(
            replace(place, dest=place.dest / task.name),
            task.name,
            found.identity,
            partial(_read, found, task, copy.allow_other_sizes),
            subword,
            workers,
        )


@dataclass(frozen=True)
class TaskCopy:
    """The splits of a task, and what identifies it for the settings."""

    identity: dict[str, Any]
    read: Callable[[str], LabelledSplit]


def find_copy(folder: Path | None, task: GlueTask, alone: bool) -> TaskCopy:
    """The task from the hub, or its copy in ``folder``.

    ``alone``: no other task is wanted, so that ``folder`` itself may be the task's.
    """
    places = [task.name, task.config, *(["."] if alone else [])]
    if folder is None:
        loaded = load_hub(HUB_DATA, task.config)
        return TaskCopy(loaded.identity, partial(read_rows, loaded, task))
    found = load_parquet(folder, places, [name for name, _ in task.splits.values()])
    if found is not None:
        return TaskCopy(found.identity, partial(read_rows, found, task))
    for place in places:
        files = original_files(folder / place, task)
        if files:
            identity = {path.name: file_sha256(path) for path in files.values()}
            return TaskCopy(identity, partial(read_original, files, task))
    names = ", ".join(f"{name}.tsv" for _, name in task.splits.values())
    raise ValueError(
        f"--from-dir {folder}: holds no copy of {task.name}; accepted are, in its "
        f"subfolder {' or '.join(places[:2])}, the original files ({names}) or the "
        "hub's parquet files"
    )


def read_rows(loaded: Loaded, task: GlueTask, name: str) -> LabelledSplit:
    """A split's examples as the hub has them."""
    stored = task.splits[name][0]
    where = f"{loaded.where}/{stored}"
    features = loaded.splits[stored].features
    if LABEL in features:
        _require_order(where, features[LABEL], task)
    columns = [column[0] for column in (task.text, task.pair) if column]
    indices = loaded.rows(stored, "idx") if "idx" in features else zip(count())
    split, line = LabelledSplit(where, strict=False), 0
    # every example of a test split needs a prediction
    needed = name.startswith("test")
    rows = zip(indices, loaded.rows(stored, *columns, LABEL), strict=False)
    for line, ((index,), (*texts, label)) in enumerate(rows, 1):
        texts = [one_line_text(text or "") for text in texts]
        if not all(texts) and not needed:
            split.skip(line, "an empty text")
        elif label in (None, HIDDEN_LABEL) and not needed:
            split.skip(line, f"the label {HIDDEN_LABEL}")
        else:
            label = _label(label, task, f"{where}, row {line}")
            pair = texts[1] if task.pair else None
            split.examples.append(Example(str(index), texts[0], pair, label, line))
    split.finish(line)
    return split


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


def _read(found: TaskCopy, task: GlueTask, other_sizes: bool) -> Problem:
    splits: dict[str, LabelledSplit] = {}
    for name, expected in task.sizes.items():
        split = splits[name] = found.read(name)
        read = len(split.examples)
        wrong = abs(read + split.skipped - expected) > expected * SIZE_TOLERANCE
        if wrong and not other_sizes:
            raise ValueError(
                f"{task.name} {name}: {split.where}: {read:,} examples, expected "
                f"{expected:,}; the copy is truncated or another one ({WAY_OUT})"
            )
    labels = list(task.labels) if task.labels else None
    return Problem(splits, labels, task.target_scale)
