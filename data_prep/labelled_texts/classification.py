"""``data_prep classification``: the user's own labelled texts, for fine-tuning."""

from __future__ import annotations

from fairseq_transnormer.data.fingerprints import file_sha256

from ..folders.options import CORES, File, Place, Workers, refuse_given
from .labelled_folder import Problem, prepare_labelled_folder
from .labelled_tables import LabelledSplit, read_table
from .subword import Pretrained, find_subword


def classification(
    place: Place,
    pretrained: Pretrained,
    train: File,
    valid: File,
    test: File | None = None,
    text_column: str = "text",
    pair_column: str | None = None,
    label_column: str = "label",
    labels: tuple[str, ...] = (),
    regression: bool = False,
    skip_malformed: bool = False,
    name: str | None = None,
    workers: Workers = CORES,
) -> None:
    """Prepare your own labelled texts for fine-tuning, as data_prep glue does GLUE.

    The files are *.tsv (a header, nothing quoted), *.csv (a header, double quotes) or
    *.jsonl (an object a line). One text or two are classified into the labels of the
    train split, or given a number with --regression. The text is encoded with the
    subword units and the dictionary of the pre-trained model. --checkpoint finds them
    where it was trained, or --data names them.

    DIR gets input0, input1 (pairs) and label, with the splits' files. Texts that are
    too long are cut, of a pair the longer first.

    Args:
        train: of the train split.
        valid: of the valid split.
        test: of the test split; its labels may be absent.
        text_column: of the text.
        pair_column: of the second text of a pair.
        label_column: of the labels.
        labels: all, in the order of their numbers; by default sorted.
        regression: the labels are numbers to predict.
        skip_malformed: leave out and count lines that are no example, up to 1 in 100.
        name: of the problem in reports; None: that of DIR.
    """
    if regression:
        refuse_given("without --regression", labels=labels)
    files = {"train": train, "valid": valid} | ({"test": test} if test else {})
    texts = [text_column, pair_column] if pair_column else [text_column]

    def read() -> Problem:
        how = {"skip_malformed": skip_malformed, "one_type": not regression}
        splits = {
            split: read_table(path, texts, label_column, split != "test", **how)
            for split, path in files.items()
        }
        if regression:
            return Problem(splits, None)
        return Problem(splits, list(labels) or _sorted_labels(splits["train"]))

    source = {
        "files": {
            split: {"name": path.name, "sha256": file_sha256(path)}
            for split, path in files.items()
        },
        "columns": [text_column, pair_column, label_column],
        "labels": labels or None,
        "regression": regression,
        "skip_malformed": skip_malformed,
    }
    task, subword = name or place.dest.resolve().name, find_subword(pretrained)
    prepare_labelled_folder(place, task, source, read, subword, workers)


def _sorted_labels(train: LabelledSplit) -> list[str]:
    """Whole numbers by their value, other labels by their characters."""
    labels = {str(example.label) for example in train.examples}
    if all(label.isdecimal() for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)
