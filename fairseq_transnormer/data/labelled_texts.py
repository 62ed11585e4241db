"""A folder of labelled texts, as data_prep makes it for ``sentence_prediction``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from . import REPORT
from .binary_data import read_binary_data
from .fingerprints import files_fingerprint
from .subword_files import BOS, EOS, SPECIAL, dictionary_sha256, read_dictionary

DICTIONARY = "input0/dict.txt"


@dataclass(frozen=True)
class SentenceData:
    """What the folder's report.json says.

    Attributes:
        folder: with input0, input1 (pairs only), label, report.json and SPLIT.tsv.
        task: name of the problem.
        labels: of the classes, in the order of their numbers; none of a regression.
        splits: name -> number of examples.
        is_regression: the label is a number.
        target_scale: what the numbers were divided by.
        max_positions: no example has more tokens, special ones counted.
        left_out: name of a split -> lines of its file that became no example.
    """

    folder: Path
    task: str
    labels: list[str]
    splits: dict[str, int]
    is_regression: bool
    target_scale: float
    max_positions: int
    left_out: dict[str, int]

    @classmethod
    def read(cls, folder: Path | str) -> SentenceData:
        """Read the report; ValueError if it is of other data."""
        path = Path(folder) / REPORT
        report = json.loads(path.read_text(encoding="utf-8"))
        if "labels" not in report:
            raise ValueError(f"{path} must be of data_prep glue or classification")
        left_out = report.get("malformed", {})
        return cls(
            folder=Path(folder),
            task=report["task"],
            labels=report["labels"],
            splits=report["splits"],
            is_regression=report["regression"],
            target_scale=float(report.get("target_scale", 1)),
            max_positions=report["max_positions"],
            left_out={name: each.get("skipped", 0) for name, each in left_out.items()},
        )

    @property
    def num_classes(self) -> int:
        """Outputs of a classification head."""
        return 1 if self.is_regression else len(self.labels)

    @property
    def is_pairs(self) -> bool:
        """Whether an example is two texts."""
        return (self.folder / "input1").is_dir()

    @cached_property
    def symbols(self) -> list[str]:
        """The entries of the texts' dictionary file."""
        return read_dictionary(self.folder / DICTIONARY)

    @cached_property
    def dictionary_sha256(self) -> str:
        """What checkpoints that were trained with this dictionary hold."""
        return dictionary_sha256([*SPECIAL, *self.symbols], len(SPECIAL))

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding of a model for these data, ``<mask>`` counted."""
        return len(SPECIAL) + len(self.symbols) + ("<mask>" not in self.symbols)

    def tokens(self, split: str) -> list[np.ndarray]:
        """The tokens of each example, int64 (N,): ``<s> text </s>``, or ``<s> text </s>
        </s> pair </s>``. So fairseq has them with --init-token 0 --separator-token 2.
        """
        if split not in self.splits:
            raise ValueError(
                f"split {split!r}; {self.folder} has {', '.join(self.splits)}"
            )
        rows = _lines(self.folder / "input0" / split, BOS)
        if not self.is_pairs:
            return rows
        pairs = _lines(self.folder / "input1" / split, EOS)
        return [np.concatenate(each) for each in zip(rows, pairs, strict=True)]

    def targets(self, split: str) -> list[int] | list[float]:
        """The number of each example's class, or its score on the labels' own scale."""
        prefix = self.folder / "label" / split
        if self.is_regression:
            values = Path(f"{prefix}.label").read_text(encoding="utf-8").split()
            # 2.632, and not 2.6319999999999997
            scores = (float(value) * self.target_scale for value in values)
            return [float(f"{score:.12g}") for score in scores]
        ids = read_binary_data(prefix).ids()
        return (ids[ids != EOS].astype(np.int64) - len(SPECIAL)).tolist()

    def fingerprint(self) -> str:
        """Changes with the dictionary, the labels and the examples."""
        said = (self.labels, self.splits, self.max_positions, self.target_scale)
        files = sorted(self.folder.glob("*/*.*"))
        names = [path.relative_to(self.folder).as_posix() for path in files]
        return files_fingerprint(self.folder, names, json.dumps(said))


def kept_lengths(text: int, pair: int, room: int) -> tuple[int, int]:
    """How many tokens of two texts of these lengths are kept in ``room``.

    The result is that of taking tokens from the longer one, one by one, from the second
    if both are equally long.
    """
    pair = min(pair, max(room // 2, room - text))
    return min(text, room - pair), pair


def _lines(prefix: Path, first: int) -> list[np.ndarray]:
    """The lines of binary data with a token in front of each."""
    lines = read_binary_data(prefix).lines()
    return [np.array([first, *line], np.int64) for line in lines]
