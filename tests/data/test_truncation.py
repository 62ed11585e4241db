"""The rule that data preparation and labelling of new text share."""

import pytest

from fairseq_transnormer.data.labelled_texts import kept_lengths


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
