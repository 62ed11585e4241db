"""What of a text or pair a model gets that takes no more than so many tokens."""

import numpy as np
import pytest

from data_prep.encoders import EOS_ID
from data_prep.truncation import FittingEncoder, kept_lengths


def one_by_one(text, pair, room):
    """The rule as it is stated: a token of the longer text goes, until it fits."""
    while text + pair > room:
        if text > pair:
            text -= 1
        else:
            pair -= 1
    return text, pair


@pytest.mark.parametrize("room", range(0, 14))
def test_longest_first(room):
    for text in range(16):
        for pair in range(16):
            assert kept_lengths(text, pair, room) == one_by_one(text, pair, room)


def numbers(lines):
    return [np.array([int(n) for n in s.split()] + [EOS_ID]) for s in lines]


def test_a_single_text_fits_with_its_two_special_symbols():
    texts, pairs, truncated = FittingEncoder(numbers, 6)(
        [("7 8 9 10", None), ("7 8 9 10 11", None), ("", None)]
    )
    assert [ids.tolist() for ids in texts] == [[7, 8, 9, 10, 2], [7, 8, 9, 10, 2], [2]]
    assert pairs == [] and truncated == 1


def test_a_pair_fits_with_its_four_special_symbols():
    texts, pairs, truncated = FittingEncoder(numbers, 9)(
        [("7 8 9", "10 11"), ("7 8 9", "10 11 12 13"), ("7", "10 11 12 13 14 15")]
    )
    assert [ids.tolist() for ids in texts] == [[7, 8, 9, 2], [7, 8, 9, 2], [7, 2]]
    assert [ids.tolist() for ids in pairs] == [
        [10, 11, 2],
        [10, 11, 2],
        [10, 11, 12, 13, 2],
    ]
    assert truncated == 2
