"""Labels for texts and prepared splits, by a fine-tuned model.

    classifier = TextClassifier.from_checkpoint("checkpoints/checkpoint_best.pt")
    for found in classifier.classify(["It rains.", ("Who?", "He did.")]):
        print(found.label, found.probabilities)

On the command line: ``python -m fairseq_transnormer classify --help``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checkpoints.convert import UNKNOWN_LABELS, check_problem
from ..checkpoints.identity import (
    KEY,
    LABELS_KEY,
    SCALE_KEY,
    check_dictionary,
    check_units,
    identity_of,
)
from ..checkpoints.load import TrainedModel, load
from ..checkpoints.manifest import MANIFEST
from ..checkpoints.safe_loading import CheckpointError
from ..checkpoints.vocabulary import Vocabulary
from ..data import label_metrics
from ..data.labelled_texts import DICTIONARY, SentenceData, kept_lengths
from ..data.subword_files import BOS, EOS, find_subword_files
from ..data.texts import check_text, one_line_text
from ..data.whole_files import make_folder_of, write_text
from ..devices import usable_device
from .score import check_overflow

Text = str | tuple[str, ...]
MULTI_LABEL = "multi_label_classification"
COLUMNS = ("example", "label", "prediction")


@dataclass(frozen=True)
class Prediction:
    """A model's prediction for a text.

    Attributes:
        label: the most probable one; None for a regression.
        probabilities: by label; empty for a regression.
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
            only for splits.

    Raises:
        ValueError: the model is not a classifier, gives a text several labels or
            scores, its labels are unknown, or ``data`` is of another problem.
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
                "folder of the problem (--data), for an export when you make it"
            )
        if self.head.regression and self.head.outputs > 1:
            raise CheckpointError(
                f"{path}: a regression with {self.head.outputs} scores a text; "
                "allowed: one (transformers' text-classification pipeline gives all)"
            )
        _refuse_multi_label(path)
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
        # an export has its own dictionary
        of_checkpoint = None if Path(path).is_dir() else data
        return cls(load(path, of_checkpoint, device=usable_device(device)), data)

    @cached_property
    def data(self) -> SentenceData:
        """The folder of the problem.

        Raises:
            OSError: there is none.
            ValueError: it is damaged, or its dictionary, subword files, labels or scale
                of scores differ from the model's.
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
        check_problem(said, head.outputs, head.regression, found, path)
        dictionary = found.folder / DICTIONARY
        rows = self.manifest.vocab_size
        here = Vocabulary.read(dictionary, (), rows, has_mask=True)
        try:
            check_dictionary({KEY: identity_of(own)}, here, path)
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
            texts: each a string, or two strings for a problem of pairs. Long texts are
                cut like those of the fine-tuning.
            batch_size: texts of similar length that run together; it does not change
                predictions.
            first: number of the first text, for messages.

        Raises:
            ValueError: a text is empty, or not a pair in a problem of pairs.
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
            table: file to write, separated by tabs: ``example``, ``label``,
                ``prediction`` and the probability of each label.
            batch_size: examples that run together.
            positive_class: number of the class for F1; by default that of the
                fine-tuning.

        Raises:
            ValueError: the split has no labels, ``positive_class`` is not one of its
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
        check_overflow(self.trained.path, found)
        return found

    def encode(self, text: Text, name: str = "text") -> list[int]:
        """The tokens of a text or a pair, special ones included; raises as ``classify``

        A single text is ``<s> text </s>``, a pair ``<s> text </s> </s> pair </s>``.
        Texts that do not fit are cut, the longer one first.

        name: of the text, for messages.
        """
        first, *second = self._ids(text, name)
        most = self._longest(1 + len(second))
        if not second:
            return [BOS, *first[:most], EOS]
        (pair,) = second
        kept = kept_lengths(len(first), len(pair), most)
        return [BOS, *first[: kept[0]], EOS, EOS, *pair[: kept[1]], EOS]

    def unknown_words(self, text: Text) -> list[str]:
        """The words or subwords of a text or pair that the dictionary lacks.

        Raises as ``classify``.
        """
        words = self.trained.words
        return [unit for part in self._parts(text) for unit in words.unknown(part)]

    def tokens_cut(self, text: Text) -> int:
        """Number of tokens of a text that do not fit; raises as ``classify``."""
        ids = self._ids(text)
        return max(0, sum(map(len, ids)) - self._longest(len(ids)))

    def _longest(self, parts: int) -> int:
        """Maximum tokens of all texts of an input; each text has two special ones."""
        return (self.manifest.sequence_length or sys.maxsize) - 2 * parts

    def _ids(self, text: Text, name: str = "text") -> list[list[int]]:
        parts = self._parts(text, name)
        return [self.trained.words.encode(part, name) for part in parts]

    def _parts(self, text: Text, name: str = "text") -> list[str]:
        """The texts, in the form of those of the fine-tuning."""
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


def _refuse_multi_label(path: Path) -> None:
    # only transformers has this field; the manifest is for both
    if path.is_dir():
        config = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if config.get("problem_type") == MULTI_LABEL:
            raise CheckpointError(
                f"{path}: problem_type={MULTI_LABEL}; allowed: one label a text "
                "(transformers' text-classification pipeline gives several)"
            )
