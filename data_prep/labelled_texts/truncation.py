"""Texts and pairs that fit a model: ids of both, cut where they are too long.

The model reads ``<s> text </s>``, or ``<s> text </s> </s> pair </s>``: fairseq's
sentence_prediction puts the first symbol and the separator in front. Tokens are taken
from the end of the longer text, of the second if both are equally long.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairseq_transnormer.data.labelled_texts import kept_lengths

from ..folders.encoders import EOS_ID

# the ids of each example's text, and of its pair where there are pairs
Columns = list[list[np.ndarray]]


@dataclass(frozen=True)
class PairEncoder:
    """``encoder`` on texts, or on both texts of pairs."""

    encoder: Callable[[list[str]], list[np.ndarray]]

    def __call__(self, batch: list[tuple[str, str | None]]) -> Columns:
        """Ids of a batch whose pairs are all None or all texts."""
        columns = zip(*batch, strict=True)
        return [self.encoder([*column]) for column in columns if column[0] is not None]


def fitting(columns: Columns, max_positions: int) -> tuple[Columns, int]:
    """The batch cut to ``max_positions`` an example, and how many examples were cut."""
    room = max_positions - 2 * len(columns)
    cut: Columns = [[] for _ in columns]
    truncated = 0
    for ids in zip(*columns, strict=True):
        lengths = [len(each) - 1 for each in ids]
        # a single text has an empty pair
        kept = [*kept_lengths(*[*lengths, 0][:2], room)][: len(ids)]
        for column, each, length in zip(cut, ids, kept, strict=True):
            column.append(_cut(each, length))
        truncated += kept != lengths
    return cut, truncated


def _cut(ids: np.ndarray, length: int) -> np.ndarray:
    if len(ids) == length + 1:
        return ids
    return np.append(ids[:length], np.int32(EOS_ID))
