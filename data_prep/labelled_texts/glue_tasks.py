"""GLUE's tasks: names, columns, labels and sizes, as the benchmark published them."""

from dataclasses import dataclass

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
    """One task. Columns are (hub's name, original's name).

    ``labels`` is in the order of the class numbers and in the form of a submission;
    None means numbers from 0 to ``target_scale``. ``hub_labels`` are the hub's names
    where it calls them otherwise.
    """

    name: str
    config: str
    text: tuple[str, str]
    pair: tuple[str, str] | None
    label: tuple[str, str]
    labels: tuple[str, ...] | None
    sizes: dict[str, int]
    splits: dict[str, tuple[str, str]]
    hub_labels: tuple[str, ...] | None = None
    target_scale: float = 1.0


def _task(name, config, columns, label, labels, sizes, splits=None, **others):
    text, *pair = [
        each if isinstance(each, tuple) else (each, each) for each in columns
    ]
    splits = splits or USUAL_SPLITS
    return GlueTask(
        name,
        config,
        text,
        pair[0] if pair else None,
        ("label", label),
        labels,
        dict(zip(splits, sizes, strict=True)),
        splits,
        **others,
    )


_SENTENCES = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")

TASKS = {
    task.name: task
    for task in (
        _task(
            *("MNLI", "mnli", [("premise", "sentence1"), ("hypothesis", "sentence2")]),
            *("gold_label", ("entailment", "neutral", "contradiction")),
            (392_702, 9_815, 9_832, 9_796, 9_847),
            MNLI_SPLITS,
        ),
        _task(
            *("QNLI", "qnli", ["question", "sentence"], "label", _ENTAILMENT),
            (104_743, 5_463, 5_463),
        ),
        _task(
            *("QQP", "qqp", ["question1", "question2"], "is_duplicate", ("0", "1")),
            (363_846, 40_430, 390_965),
            hub_labels=("not_duplicate", "duplicate"),
        ),
        _task(
            *("SST-2", "sst2", ["sentence"], "label", ("0", "1")),
            (67_349, 872, 1_821),
            hub_labels=("negative", "positive"),
        ),
        _task(
            *(
                "MRPC",
                "mrpc",
                [(_SENTENCES[0], "#1 String"), (_SENTENCES[1], "#2 String")],
            ),
            *("Quality", ("0", "1"), (3_668, 408, 1_725)),
            hub_labels=("not_equivalent", "equivalent"),
        ),
        _task(
            *("CoLA", "cola", ["sentence"], "label", ("0", "1")),
            (8_551, 1_043, 1_063),
            hub_labels=("unacceptable", "acceptable"),
        ),
        _task("RTE", "rte", _SENTENCES, "label", _ENTAILMENT, (2_490, 277, 3_000)),
        _task(
            *("STS-B", "stsb", _SENTENCES, "score", None, (5_749, 1_500, 1_379)),
            target_scale=5.0,
        ),
    )
}
# the columns of the paper's Table 5; MNLI has two
TABLE_5 = ("MNLI", "QNLI", "QQP", "SST-2", "MRPC", "CoLA")


def find_task(name: str) -> GlueTask:
    """The task of this name, in capitals or not, with a hyphen or without."""
    for task in TASKS.values():
        if _plain(name) == _plain(task.name):
            return task
    raise ValueError(f"task {name!r}: unknown; allowed are {', '.join(TASKS)}")


def _plain(name: str) -> str:
    return name.lower().replace("-", "")
