"""The copy task and associative recall: what is told is what stood in front."""

from collections import Counter

import pytest

from .binary_reading import read_dictionary, read_text
from .commands import copy_task, recall

COUNTS = ["--counts", "600", "30", "20"]
COPY = [*COUNTS, "--symbols", "5", "--shortest", "3", "--longest", "12"]
RECALL = ["--vocabulary", "24", "--length", "40", "--pairs", "5"]
RECALL += ["--counts", "500", "30", "20"]


def made(command, dest, *options):
    assert command(["--dest", str(dest), *options]) == 0
    return dest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(copy_task, tmp_path_factory.mktemp("copy") / "data", *COPY)


def test_the_second_half_is_the_first(folder):
    for split, count in (("train", 600), ("valid", 30), ("test", 20)):
        lines = read_text(folder, split)
        assert len(lines) == count
        for line in lines:
            first, second = line.split(" | ")
            assert first == second
            assert 3 <= len(first.split()) <= 12
            assert set(first.split()) <= set("01234")


def test_lengths_and_symbols_are_even(folder):
    halves = [line.split(" | ")[0].split() for line in read_text(folder, "train")]
    lengths = Counter(map(len, halves))
    assert set(lengths) == set(range(3, 13))
    symbols = Counter(symbol for half in halves for symbol in half)
    for counts in (lengths, symbols):
        expected = sum(counts.values()) / len(counts)
        assert all(abs(n - expected) < 5 * expected**0.5 for n in counts.values())


@pytest.mark.parametrize(
    ("options", "lengths"), [([], (32, 62)), (["--longest", "14"], (8, 14))]
)
def test_a_series_has_more_than_half_of_the_longest(tmp_path, options, lengths):
    """As in the authors' code, whose lines of 128 symbols have 32 to 62 in a series."""
    dest = made(copy_task, tmp_path / "data", *COUNTS, *options)
    lines = read_text(dest, "train")
    found = {len(line.split(" | ")[0].split()) for line in lines}
    assert (min(found), max(found)) == lengths


def test_the_dictionary_has_the_symbols_and_the_separator(folder):
    dictionary = read_dictionary(folder)
    assert [dictionary[i] for i in range(4, 10)] == ["0", "1", "2", "3", "4", "|"]


@pytest.fixture(scope="module")
def recalled(tmp_path_factory):
    return made(recall, tmp_path_factory.mktemp("recall") / "data", *RECALL)


@pytest.mark.parametrize(
    ("command", "options", "fixture"),
    [(copy_task, COPY, "folder"), (recall, RECALL, "recalled")],
)
def test_a_seed_gives_the_same_data_and_splits_that_differ(
    command, options, fixture, request, tmp_path
):
    first = request.getfixturevalue(fixture)
    again, other = (
        made(command, tmp_path / seed, *options, "--seed", seed) for seed in ("1", "2")
    )
    train = (first / "train.bin").read_bytes()
    assert (again / "train.bin").read_bytes() == train
    assert (other / "train.bin").read_bytes() != train
    assert read_text(first, "valid")[:20] != read_text(first, "test")


def test_each_key_comes_again_and_has_its_value(recalled):
    for split, count in (("train", 500), ("valid", 30), ("test", 20)):
        lines = read_text(recalled, split)
        assert len(lines) == count
        for line in lines:
            inputs, told = (part.split() for part in line.split(" | "))
            assert len(inputs) == len(told) == 40
            value_of = dict(zip(inputs[:10:2], inputs[1:10:2], strict=True))
            # keys differ, and so do values
            assert len(value_of) == len({*value_of.values()}) == 5
            again = {
                at: key for at, key in enumerate(inputs) if at >= 10 and key != "."
            }
            assert {*again.values()} == {*value_of} and len(again) == 5
            for at, symbol in enumerate(told):
                assert symbol == value_of.get(again.get(at), "."), line


def test_the_gaps_follow_the_power_law(tmp_path):
    # of one pair, so that the gaps are independent
    law = ["--vocabulary", "4", "--length", "12", "--pairs", "1", "--power", "0.5"]
    recalled = made(recall, tmp_path / "data", *law, "--counts", "1500", "1", "1")
    places = Counter(
        (len(line.split(" | ")[0].rstrip(" .").split()) - 3) // 2 + 1
        for line in read_text(recalled, "train")
    )
    weights = [gap**-0.5 for gap in range(1, 6)]
    for gap, weight in enumerate(weights, 1):
        expected = 1500 * weight / sum(weights)
        assert abs(places[gap] - expected) < 5 * expected**0.5, places


def test_a_power_with_which_all_gaps_are_short(tmp_path):
    options = [*RECALL, "--power", "100", "--counts", "5", "1", "1"]
    made(recall, tmp_path / "data", *options)
