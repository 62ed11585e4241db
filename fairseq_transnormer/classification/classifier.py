"""Labels for texts, and for the prepared splits of a problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..data.labelled_texts import SentenceData
from ..data.texts import check_text
from ..devices import usable_device
from .checkpoint import load_fine_tuned
from .encoding import TextEncoder
from .errors import ClassificationError

Text = str | tuple[str, str]


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
    """A fine-tuned model with the subword units and labels of its data.

    Args:
        model: with a classification head.
        task: fairseq's ``sentence_prediction``.
        data: that it was fine-tuned on.
        folders: where subword files may be, besides those of the data.
        positive_class: number of the class that the fine-tuning's F1 is about.
    """

    def __init__(
        self,
        model,
        task,
        data: SentenceData,
        folders: Sequence[Path] = (),
        positive_class: int = 1,
    ):
        self.model, self.task, self.data = model, task, data
        self.positive_class = positive_class
        self.dictionary = task.source_dictionary
        self.head = task.cfg.classification_head_name
        self.encode = TextEncoder(
            [data.folder, data.folder / "input0", *folders],
            self.dictionary,
            min(data.max_positions, task.max_positions()),
        )

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        data: str | Path | None = None,
        device: str | torch.device | None = None,
    ) -> TextClassifier:
        """Load a fine-tuned checkpoint.

        Args:
            path: the checkpoint file.
            data: folder of the problem with report.json, dictionaries and subword
                files; by default that of the fine-tuning.
            device: where to run; by default "cuda" if there is one, else "cpu".

        Raises:
            ClassificationError: a file is missing or not what it should be, or there is
                no such device.
        """
        try:
            device = usable_device(device)
        except ValueError as error:
            raise ClassificationError(str(error)) from error
        model, task, found, positive_class = load_fine_tuned(path, data)
        folders = [Path(path).parent]
        return cls(model.to(device), task, found, folders, positive_class)

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
            ClassificationError: a text is empty, or no pair where it must be one.
        """
        rows = [self._encoded(i, text) for i, text in enumerate(texts, first)]
        return self._predictions(self.outputs(rows, batch_size))

    def classify_split(self, split: str, batch_size: int = 32) -> list[Prediction]:
        """Predictions for a split of the data, in its order."""
        return self._predictions(self.outputs(self.rows_of(split), batch_size))

    def rows_of(self, split: str) -> list[Tensor]:
        """The token ids of each example of a split.

        Raises:
            ClassificationError: the data have no such split.
        """
        if split not in self.data.splits:
            raise ClassificationError(
                f"split {split!r}; {self.data.folder} has {', '.join(self.data.splits)}"
            )
        dataset = self.task.load_dataset(split)
        return [dataset[i]["net_input.src_tokens"] for i in range(len(dataset))]

    @torch.no_grad()
    def outputs(self, rows: Sequence[Tensor], batch_size: int = 32) -> Tensor:
        """float32 (examples, outputs of the head), on the CPU."""
        if batch_size < 1:
            raise ClassificationError(f"batch_size={batch_size}; allowed: at least 1")
        found = torch.empty(len(rows), self.data.num_classes)
        for numbers in _batches(rows, batch_size):
            batch = torch.nn.utils.rnn.pad_sequence(
                [torch.as_tensor(rows[i]).long() for i in numbers],
                batch_first=True,
                padding_value=self.dictionary.pad(),
            )
            device = next(self.model.parameters()).device
            scores, _ = self.model(
                batch.to(device),
                features_only=True,
                classification_head_name=self.head,
            )
            found[numbers] = scores.float().cpu()
        return found

    def unknown_words(self, text: Text) -> list[str]:
        """The words, or subword units, of a text or pair that the dictionary lacks.

        Raises:
            ClassificationError: as ``classify``.
        """
        parts = self._parts("text", text)
        return [word for part in parts for word in self.encode.unknown_words(part)]

    def tokens_left_out(self, text: Text) -> int:
        """Tokens of a text or pair beyond the fine-tuning's ``max_positions``.

        Raises:
            ClassificationError: as ``classify``.
        """
        return self.encode.left_out(*self._parts("text", text))

    def _encoded(self, number: int, text: Text) -> Tensor:
        return torch.tensor(self.encode(*self._parts(f"text {number}", text)))

    def _parts(self, name: str, text: Text) -> tuple[str, ...]:
        parts = tuple(text) if isinstance(text, (tuple, list)) else (text,)
        wanted = 2 if self.data.is_pairs else 1
        if len(parts) != wanted:
            raise ClassificationError(
                f"{name} has {len(parts)} parts; {self.data.task} takes {wanted}"
            )
        for part in parts:
            check_text(part, ClassificationError, name)
        if not all(part.strip() for part in parts):
            raise ClassificationError(f"{name} is empty; allowed: words")
        return parts

    def _predictions(self, outputs: Tensor) -> list[Prediction]:
        if self.data.is_regression:
            scale = self.data.target_scale
            return [Prediction(None, {}, row[0] * scale) for row in outputs.tolist()]
        labels = self.data.labels
        return [
            Prediction(labels[best], dict(zip(labels, row, strict=True)))
            for best, row in zip(
                outputs.argmax(-1).tolist(), outputs.softmax(-1).tolist(), strict=True
            )
        ]


def _batches(rows: Sequence[Tensor], batch_size: int) -> Iterator[list[int]]:
    """Numbers of rows, the shortest first."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]
