"""Texts and pairs that fit a model: ids of both, cut where they are too long.

The model reads ``<s> text </s>``, or ``<s> text </s> </s> pair </s>``: fairseq's
sentence_prediction puts the first symbol and the separator in front.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from data_prep.folders.encoders import EOS_ID
from fairseq_transnormer.data.labelled_texts import kept_lengths

RULE = (
    "longest first: tokens are taken from the end of the longer text, of the second "
    "if both are equally long, until the whole fits; every </s> is kept"
)


class EncodedBatch(NamedTuple):
    """Ids by example, each with its </s>. ``pairs`` is empty for single texts."""

    texts: list[np.ndarray]
    pairs: list[np.ndarray]


@dataclass(frozen=True)
class PairEncoder:
    """``encoder`` on texts, or on both texts of pairs."""

    encoder: Callable[[list[str]], list[np.ndarray]]

    def __call__(self, batch: list[tuple[str, str | None]]) -> EncodedBatch:
        """Ids of a batch whose pairs are all None or all texts."""
        texts = self.encoder([text for text, _ in batch])
        if batch[0][1] is None:
            return EncodedBatch(texts, [])
        return EncodedBatch(texts, self.encoder([pair for _, pair in batch]))


def fitting(batch: EncodedBatch, max_positions: int) -> tuple[EncodedBatch, int]:
    """The batch cut to ``max_positions`` an example, and how many examples were cut."""
    if not batch.pairs:
        room = max_positions - len(("<s>", "</s>"))
        texts = [_cut(ids, min(len(ids) - 1, room)) for ids in batch.texts]
        truncated = sum(map(_is_shorter, texts, batch.texts))
        return EncodedBatch(texts, []), truncated
    room = max_positions - len(("<s>", "</s>", "</s>", "</s>"))
    cut, truncated = EncodedBatch([], []), 0
    for text, pair in zip(*batch, strict=True):
        lengths = kept_lengths(len(text) - 1, len(pair) - 1, room)
        cut.texts.append(_cut(text, lengths[0]))
        cut.pairs.append(_cut(pair, lengths[1]))
        truncated += sum(lengths) < len(text) + len(pair) - 2
    return cut, truncated


def _cut(ids: np.ndarray, length: int) -> np.ndarray:
    if len(ids) == length + 1:
        return ids
    return np.append(ids[:length], np.int32(EOS_ID))


def _is_shorter(one: np.ndarray, other: np.ndarray) -> bool:
    return len(one) < len(other)
