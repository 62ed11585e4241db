"""Texts and pairs that fit a model: ids of both, cut where they are too long.

The model reads ``<s> text </s>``, or ``<s> text </s> </s> pair </s>``: fairseq's
sentence_prediction puts the first symbol and the separator in front.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from data_prep.encoders import EOS_ID

RULE = (
    "longest first: tokens are taken from the end of the longer text, of the second "
    "if both are equally long, until the whole fits; every </s> is kept"
)


class EncodedBatch(NamedTuple):
    """Ids by example, each with its </s>. ``pairs`` is empty for single texts."""

    texts: list[np.ndarray]
    pairs: list[np.ndarray]
    truncated: int


def kept_lengths(text: int, pair: int, room: int) -> tuple[int, int]:
    """How much of two texts of these lengths is kept, longest first.

    The result is that of taking tokens from the longer one, one by one.
    """
    if text + pair <= room:
        return text, pair
    if text <= room // 2:
        return text, room - text
    if pair <= room // 2:
        return room - pair, pair
    return room - room // 2, room // 2


@dataclass(frozen=True)
class FittingEncoder:
    """``encoder`` on texts or pairs, which come to have at most ``max_positions``."""

    encoder: Callable[[list[str]], list[np.ndarray]]
    max_positions: int

    def __call__(self, batch: list[tuple[str, str | None]]) -> EncodedBatch:
        """Ids of a batch whose pairs are all None or all texts."""
        texts = self.encoder([text for text, _ in batch])
        if batch[0][1] is None:
            room = self.max_positions - len(("<s>", "</s>"))
            kept = [min(len(ids) - 1, room) for ids in texts]
            cut = [_cut(ids, length) for ids, length in zip(texts, kept, strict=True)]
            return EncodedBatch(cut, [], _shorter(texts, cut))
        pairs = self.encoder([pair for _, pair in batch])
        room = self.max_positions - len(("<s>", "</s>", "</s>", "</s>"))
        kept_texts, kept_pairs, truncated = [], [], 0
        for text, pair in zip(texts, pairs, strict=True):
            lengths = kept_lengths(len(text) - 1, len(pair) - 1, room)
            kept_texts.append(_cut(text, lengths[0]))
            kept_pairs.append(_cut(pair, lengths[1]))
            truncated += sum(lengths) < len(text) + len(pair) - 2
        return EncodedBatch(kept_texts, kept_pairs, truncated)


def _cut(ids: np.ndarray, length: int) -> np.ndarray:
    if len(ids) == length + 1:
        return ids
    return np.append(ids[:length], np.int32(EOS_ID))


def _shorter(before: list[np.ndarray], after: list[np.ndarray]) -> int:
    return sum(len(one) > len(other) for one, other in zip(before, after, strict=True))
