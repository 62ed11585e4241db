"""What of a text or pair a model gets that takes no more than so many tokens."""

import numpy as np

from data_prep.folders.encoders import EOS_ID
from data_prep.labelled_texts.truncation import PairEncoder, fitting


def numbers(lines):
    return [np.array([int(n) for n in s.split()] + [EOS_ID]) for s in lines]


def test_a_single_text_fits_with_its_two_special_symbols():
    batch = PairEncoder(numbers)(
        [("7 8 9 10", None), ("7 8 9 10 11", None), ("", None)]
    )
    (texts, pairs), truncated = fitting(batch, 6)
    assert [ids.tolist() for ids in texts] == [[7, 8, 9, 10, 2], [7, 8, 9, 10, 2], [2]]
    assert pairs == [] and truncated == 1


def test_a_pair_fits_with_its_four_special_symbols():
    batch = PairEncoder(numbers)(
        [("7 8 9", "10 11"), ("7 8 9", "10 11 12 13"), ("7", "10 11 12 13 14 15")]
    )
    (texts, pairs), truncated = fitting(batch, 9)
    assert [ids.tolist() for ids in texts] == [[7, 8, 9, 2], [7, 8, 9, 2], [7, 2]]
    assert [ids.tolist() for ids in pairs] == [
        [10, 11, 2],
        [10, 11, 2],
        [10, 11, 12, 13, 2],
    ]
    assert truncated == 2
