"""Label texts with a fine-tuned model, evaluate it, or write GLUE submission files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checkpoints.convert import UNKNOWN_LABELS, check_problem
from ..checkpoints.identity import (
    LABELS_KEY,
    SCALE_KEY,
    check_identity,
    check_units,
    identity_of,
)
from ..checkpoints.load import TrainedModel, load
from ..checkpoints.safe_loading import CheckpointError
from ..checkpoints.vocabulary import UNK, Vocabulary
from ..data import label_metrics
from ..data.binary_data import EOS
from ..data.labelled_texts import BOS, DICTIONARY, SentenceData, kept_lengths
from ..data.subword_files import SPECIAL, find_subword_files
from ..data.texts import (
    argument_text,
    check_text,
    one_line_text,
    read_given_lines,
    tell_unknown_words,
)
from ..data.whole_files import json_text, make_folder_of, write_text
from ..devices import usable_device
from ..subcommands import run_command

Text = str | tuple[str, ...]
# texts that are read before the first label is printed
TEXTS_AT_ONCE = 1024
COLUMNS = ("example", "label", "prediction")


@dataclass(frozen=True)
class Prediction:
    """What a model says of a text.

    Attributes:
        label: the likeliest one; None of a regression.
        probabilities: by label; empty of a regression.
        score: of a regression, on the scale of its labels; else None.
    """

    label: str | None
    probabilities: dict[str, float]
    score: float | None = None


class TextClassifier:
    """A fine-tuned model with its vocabulary and labels.

    Args:
        trained: a classifier.
        data: folder of the problem; by default that of the fine-tuning, which is read
            where a split is asked for.

    Raises:
        ValueError: it is no classifier, its labels are not known, or ``data`` is of
            another problem.
    """

    def __init__(self, trained: TrainedModel, data: str | Path | None = None):
        path, manifest = trained.path, trained.manifest
        if manifest.head is None:
            raise CheckpointError(
                f"{path}: a {manifest.kind} language model, not fine-tuned; "
                "scripts/finetune_glue.sh does that"
            )
        self.trained, self.manifest, self.head = trained, manifest, manifest.head
        are_known = manifest.labels or self.head.regression
        if not are_known or UNKNOWN_LABELS in trained.notes:
            raise CheckpointError(
                f"{path}: {'; '.join(trained.notes) or UNKNOWN_LABELS}; name the "
                "folder of the problem (--data), of an export when it is made"
            )
        self._folder = data or trained.data
        self.texts = manifest.texts if data is None else 1 + self.data.is_pairs

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        data: str | Path | None = None,
        device: str | torch.device | None = None,
    ) -> TextClassifier:
        """Load a fine-tuned model.

        Args:
            path: a checkpoint, or the folder of its export.
            data: folder of the problem; by default that of the fine-tuning.
            device: where to run; by default "cuda" if there is one, else "cpu".

        Raises:
            ValueError: see the class and ``load``; there is no such device.
        """
        return cls(load(path, data, device=usable_device(device)), data)

    @cached_property
    def data(self) -> SentenceData:
        """The folder of the problem.

        Raises:
            ValueError: there is none, it is damaged, or its dictionary, subword files,
                labels or the scale of its scores are not the model's.
        """
        path, head, own = self.trained.path, self.head, self.trained.vocabulary
        if not self._folder or own is None:
            notes = "; ".join(self.trained.notes) or "the fine-tuning's is not known"
            raise CheckpointError(
                f"{path}: {notes}; name the folder of the problem (--data)"
            )
        found = SentenceData.read(self._folder)
        scale = head.target_scale if head.regression else None
        said = {LABELS_KEY: self.manifest.labels or None, SCALE_KEY: scale}
        check_problem({"extra_state": said}, head.outputs, head.regression, found, path)
        dictionary = found.folder / DICTIONARY
        here = Vocabulary.read(dictionary, rows=self.manifest.vocab_size)
        try:
            check_identity(identity_of(own), here, path)
            if own.units and self.manifest.files:  # else ``load`` has compared them
                units = find_subword_files([found.folder, dictionary.parent])
                check_units(self.manifest.files, units, here, found.folder, path)
        except CheckpointError as error:
            raise CheckpointError(f"{error} (--data; here: {found.folder})") from error
        return found

    def classify(
        self, texts: Sequence[Text], batch_size: int = 32, first: int = 1
    ) -> list[Prediction]:
        """Predictions in the order of the texts.

        Args:
            texts: each a string, or two strings where the problem is about pairs; what
                does not fit is cut, as the texts of the fine-tuning were.
            batch_size: texts that run together, those of like length at a time; it
                changes no prediction.
            first: number of the first text, for messages.

        Raises:
            ValueError: a text is empty, or no pair where it must be one.
        """
        rows = [self.encode(text, f"text {i}") for i, text in enumerate(texts, first)]
        return self._predictions(self.outputs(rows, batch_size))

    def classify_split(self, split: str, batch_size: int = 32) -> list[Prediction]:
        """Predictions for a split of the data, in its order; raises as ``data``."""
        return self._predictions(self.outputs(self.data.tokens(split), batch_size))

    def evaluate(
        self,
        split: str,
        table: Path | None = None,
        batch_size: int = 32,
        positive_class: int | None = None,
    ) -> dict[str, float]:
        """Metrics of a split of the data.

        Args:
            split: with labels.
            table: file to write ``example``, ``label``, ``prediction`` and a column for
                each label's probability to, set apart by tabs.
            batch_size: examples that run together.
            positive_class: number of the class that F1 is about; by default that of the
                fine-tuning.

        Raises:
            ValueError: the split has no labels, ``positive_class`` is none of its
                classes, or the table's folder cannot be made.
            OSError: the table cannot be written.
        """
        if table is not None:
            make_folder_of(table, "the result")
        labels, chosen = self.manifest.labels, positive_class
        if chosen is None:
            chosen = self.manifest.positive_class
        if labels and not 0 <= chosen < len(labels):
            raise ValueError(
                f"positive_class={chosen}; allowed: 0 to {len(labels) - 1}"
            )
        predictions = self.classify_split(split, batch_size)
        truth = self.data.targets(split)
        rows: list[tuple[Any, ...]]
        if self.head.regression:
            scores = [each.score for each in predictions]
            rows = list(zip(truth, scores, strict=True))
            found = label_metrics.of_scores(np.array(scores), np.array(truth))
        else:
            names = [labels[int(number)] for number in truth]
            rows = [
                (name, each.label, *each.probabilities.values())
                for name, each in zip(names, predictions, strict=True)
            ]
            confusion = np.zeros((len(labels), len(labels)))
            for name, label, *_ in rows:
                confusion[labels.index(name), labels.index(label)] += 1
            found = label_metrics.of_classes(confusion, chosen)
        if table is not None:
            lines = [(*COLUMNS, *labels), *((i, *row) for i, row in enumerate(rows))]
            write_text(table, "".join("\t".join(map(str, x)) + "\n" for x in lines))
        return found

    @torch.no_grad()
    def outputs(
        self, rows: Sequence[Sequence[int] | np.ndarray], batch_size: int = 32
    ) -> Tensor:
        """float32 (examples, outputs of the head), on the CPU."""
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}; allowed: at least 1")
        found = torch.empty(len(rows), self.head.outputs)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            batch = torch.nn.utils.rnn.pad_sequence(
                [torch.as_tensor(rows[i]) for i in numbers],
                batch_first=True,
                padding_value=self.manifest.special_tokens["pad"],
            )
            scores = self.trained.model(batch.to(self.trained.device))
            found[numbers] = scores.float().cpu()
        return found

    def encode(self, text: Text, name: str = "text") -> list[int]:
        """The tokens of a text or a pair, special ones included; raises as ``classify``

        A single text is ``<s> text </s>``, a pair ``<s> text </s> </s> pair </s>``.
        What does not fit is cut, longest first.

        name: of the text, for messages.
        """
        first, *second = self._ids(text, name)
        room = self._room(1 + len(second))
        if not second:
            return [BOS, *first[:room], EOS]
        (pair,) = second
        kept = kept_lengths(len(first), len(pair), room)
        return [BOS, *first[: kept[0]], EOS, EOS, *pair[: kept[1]], EOS]

    def unknown_words(self, text: Text) -> list[str]:
        """The words, or subword units, of a text or pair that the dictionary lacks;
        raises as ``classify``."""
        words = self.trained.words
        return [unit for part in self._parts(text) for unit in words.unknown(part)]

    def tokens_left_out(self, text: Text) -> int:
        """Tokens of a text or pair that do not fit and are not read; raises as
        ``classify``."""
        ids = self._ids(text)
        return max(0, sum(map(len, ids)) - self._room(len(ids)))

    def _room(self, parts: int) -> int:
        """Tokens of so many texts that a model reads; each has two special ones."""
        return (self.manifest.sequence_length or sys.maxsize) - 2 * parts

    def _ids(self, text: Text, name: str = "text") -> list[list[int]]:
        parts = self._parts(text, name)
        return [self.trained.words.encode(part, name) for part in parts]

    def _parts(self, text: Text, name: str = "text") -> list[str]:
        """Each of the texts as those of the fine-tuning were read."""
        parts = tuple(text) if isinstance(text, (tuple, list)) else (text,)
        allowed = [self.texts] if self.texts else [1, 2]
        if len(parts) not in allowed:
            raise ValueError(
                f"{name} has {len(parts)} parts; {self.trained.path} takes "
                f"{' or '.join(map(str, allowed))}"
            )
        for part in parts:
            check_text(part, name)
            if not part.strip():
                raise ValueError(f"{name} is empty; allowed: words")
        return [one_line_text(part) for part in parts]

    def _predictions(self, outputs: Tensor) -> list[Prediction]:
        if self.head.regression:
            scale = self.head.target_scale
            return [Prediction(None, {}, row[0] * scale) for row in outputs.tolist()]
        labels = self.manifest.labels
        return [
            Prediction(labels[best], dict(zip(labels, row, strict=True)))
            for best, row in zip(
                outputs.argmax(-1).tolist(), outputs.softmax(-1).tolist(), strict=True
            )
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status, 2 if what was given does not do."""
    parser = _parser()
    args = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _run(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_transnormer classify",
        description=__doc__,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--path", required=True, help="fine-tuned checkpoint, or its export")
    problem = "folder of the problem (default: that of the fine-tuning)"
    add("--data", metavar="DIR", help=problem)
    add("--device", help="(default: cuda if there is one, else cpu)")
    add("--batch-size", type=int, default=32, help="texts at once (default: 32)")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--text",
        type=argument_text,
        nargs="+",
        action="append",
        metavar="TEXT",
        help="a text, or the two of a pair; may be given several times",
    )
    what.add_argument(
        "--input",
        metavar="FILE",
        help="a text a line, with a tab between those of a pair; -: stdin",
    )
    what.add_argument(
        "--evaluate", metavar="SPLIT", help="print the metrics of a labelled split"
    )
    what.add_argument(
        "--submission", type=Path, metavar="DIR", help="write GLUE's test predictions"
    )
    add(
        "--dump-predictions",
        type=Path,
        metavar="FILE",
        help="with --evaluate: every label, prediction and probability as a table",
    )
    add(
        "--positive-class",
        type=int,
        help="with --evaluate: number of the class that F1 is about (default: that of "
        "the fine-tuning)",
    )
    add(
        "--json",
        action="store_true",
        help="print an object a text, with the fingerprint of the weights",
    )
    return parser


def _run(args: argparse.Namespace) -> None:
    if args.dump_predictions is not None and args.evaluate is None:
        raise ValueError("--dump-predictions: allowed with --evaluate only")
    classifier = TextClassifier.from_checkpoint(args.path, args.data, args.device)
    if args.submission is not None:
        from .glue_submission import write_submission

        for path in write_submission(classifier, args.submission, args.batch_size):
            print(path)
    elif args.evaluate is not None:
        table, chosen = args.dump_predictions, args.positive_class
        found = classifier.evaluate(args.evaluate, table, args.batch_size, chosen)
        made_with = {
            "split": args.evaluate,
            "data": classifier.data.fingerprint(),
            "checkpoint": args.path,
            "weights": classifier.trained.fingerprint(),
        }
        print(json_text(found | made_with))
    else:
        _label(classifier, args)


def _label(classifier: TextClassifier, args: argparse.Namespace) -> None:
    made_with = {"weights": classifier.trained.fingerprint()} if args.json else {}
    texts = _texts(args, classifier.texts)
    first = 1
    while group := list(islice(texts, TEXTS_AT_ONCE)):
        predictions = classifier.classify(group, args.batch_size, first)
        for number, text in enumerate(group, first):
            unknown = classifier.unknown_words(text)
            tell_unknown_words(f"text {number}", unknown, SPECIAL[UNK])
            if left_out := classifier.tokens_left_out(text):
                print(
                    f"text {number}: {left_out} tokens beyond max_positions="
                    f"{classifier.manifest.sequence_length} are not read",
                    file=sys.stderr,
                )
        for found in predictions:
            if args.json:
                print(json_text(asdict(found) | made_with, ensure_ascii=False))
            elif found.label is None:
                print(f"{found.score:.4f}")
            else:
                print(f"{found.label}\t{found.probabilities[found.label]:.4f}")
        sys.stdout.flush()
        first += len(group)


def _texts(args: argparse.Namespace, parts: int | None) -> Iterator[Text]:
    """parts: of an example, 1 or 2; None if unknown."""
    if args.text is not None:
        yield from (each[0] if len(each) == 1 else tuple(each) for each in args.text)
        return
    lines = read_given_lines(args.input, "text")
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if parts is None and "\t" in line:
            raise ValueError(
                f"text {number} has a tab, which is a space or stands between the "
                "texts of a pair; name the folder of the problem (--data)"
            )
        yield tuple(line.split("\t")) if parts == 2 else line
