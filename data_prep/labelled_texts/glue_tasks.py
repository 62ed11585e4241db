"""GLUE's tasks: names, columns, labels and sizes, as the benchmark published them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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

    @property
    def sizes(self) -> dict[str, int]:
        """The published number of examples of each split."""
        return dict(zip(self.splits, self.counts, strict=True))


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
