"""Files for gluebenchmark.com, with the names and labels of its server."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..data.labelled_texts import SentenceData
from ..data.whole_files import make_folder_of, write_text
from .classify import Prediction, TextClassifier

# problem -> split -> file
FILES = {
    "cola": {"test": "CoLA.tsv"},
    "mnli": {"test": "MNLI-m.tsv", "test1": "MNLI-mm.tsv"},
    "mrpc": {"test": "MRPC.tsv"},
    "qnli": {"test": "QNLI.tsv"},
    "qqp": {"test": "QQP.tsv"},
    "rte": {"test": "RTE.tsv"},
    "sst2": {"test": "SST-2.tsv"},
    "stsb": {"test": "STS-B.tsv"},
}
# the server reads these labels unchanged
NAMES = {
    "mnli": {"entailment", "neutral", "contradiction"},
    "qnli": {"entailment", "not_entailment"},
    "rte": {"entailment", "not_entailment"},
}
# for other problems it reads class numbers; the hub's data have names
NUMBERED = {
    "cola": {"unacceptable": "0", "acceptable": "1"},
    "mrpc": {"not_equivalent": "0", "equivalent": "1"},
    "qqp": {"not_duplicate": "0", "duplicate": "1"},
    "sst2": {"negative": "0", "positive": "1"},
}
STSB_RANGE = (0.0, 5.0)


def task_key(name: str) -> str:
    """ "SST-2" -> "sst2": a problem's name without case and signs."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def write_submission(
    classifier: TextClassifier, folder: Path, batch_size: int = 32
) -> list[Path]:
    """Write the files of the classifier's problem; returns their paths.

    Raises:
        ValueError: the problem is not one of GLUE, its labels are not GLUE's, a test
            split is missing or lacks an example, or ``folder`` cannot be made.
        OSError: a file cannot be written.
    """
    data = classifier.data
    task = task_key(data.task)
    if task not in FILES:
        raise ValueError(
            f"task {data.task!r} has no submission; allowed: {', '.join(FILES)}"
        )
    _check_labels(task, data)
    _check_complete(FILES[task], data)
    for name in FILES[task].values():
        make_folder_of(folder / name, "the result")
    found = {
        name: classifier.classify_split(split, batch_size)
        for split, name in FILES[task].items()
    }
    for name, predictions in found.items():
        shown = (_text(task, each) for each in predictions)
        lines = [f"{i}\t{text}\n" for i, text in enumerate(shown)]
        write_text(folder / name, "index\tprediction\n" + "".join(lines))
    return [folder / name for name in found]


def _check_complete(splits: Iterable[str], data: SentenceData) -> None:
    """Check that no example is missing: the server identifies examples by position."""
    for split in splits:
        if data.left_out.get(split):
            raise ValueError(
                f"{data.folder}: skipped malformed lines of {split}: "
                f"{data.left_out[split]}; allowed: 0, since later answers would belong "
                "to other examples. Prepare a file without such lines"
            )


def _check_labels(task: str, data: SentenceData) -> None:
    labels = set(data.labels)
    allowed = [NAMES[task]] if task in NAMES else [{"0", "1"}]
    if task in NUMBERED:
        allowed.append(set(NUMBERED[task]))
    if (task == "stsb") != data.is_regression or (
        not data.is_regression and labels not in allowed
    ):
        found = "numbers" if data.is_regression else ", ".join(data.labels)
        names = " or ".join(", ".join(sorted(each)) for each in allowed)
        raise ValueError(
            f"{data.folder}: labels {found}; allowed for {task}: "
            f"{'numbers' if task == 'stsb' else names}"
        )


def _text(task: str, prediction: Prediction) -> str:
    if prediction.score is None:
        label = str(prediction.label)
        return NUMBERED.get(task, {}).get(label, label)
    low, high = STSB_RANGE
    return f"{min(max(prediction.score, low), high):.3f}"
