"""Associative recall: what is to be told is what the key had in the pairs."""

from collections import Counter

import pytest

from data_prep.folders.verify import verify_folder
from data_prep.symbols import recall

from .binary_reading import read_text

COUNTS = ["500", "30", "20"]
LAW = ["--vocabulary", "24", "--length", "40", "--pairs", "5"]


def made(dest, *options):
    assert recall.main(["--dest", str(dest), "--counts", *COUNTS, *options]) == 0
    return dest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory.mktemp("recall") / "data", *LAW)


def test_each_key_comes_again_and_has_its_value(folder):
    counts = verify_folder(folder)
    assert [counts[s]["lines"] for s in ("train", "valid", "test")] == [500, 30, 20]
    for split in counts:
        for line in read_text(folder, split):
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
    folder = made(tmp_path / "data", *law, "--counts", "1500", "1", "1")
    places = Counter(
        (len(line.split(" | ")[0].rstrip(" .").split()) - 3) // 2 + 1
        for line in read_text(folder, "train")
    )
    weights = [gap**-0.5 for gap in range(1, 6)]
    for gap, weight in enumerate(weights, 1):
        expected = 1500 * weight / sum(weights)
        assert abs(places[gap] - expected) < 5 * expected**0.5, places


def test_a_power_with_which_all_gaps_are_short(tmp_path):
    made(tmp_path / "data", *LAW, "--power", "100", "--counts", "5", "1", "1")


def test_a_seed_gives_the_same_data_and_splits_that_differ(folder, tmp_path):
    again, other = (made(tmp_path / s, *LAW, "--seed", s) for s in ("1", "2"))
    train = (folder / "train.bin").read_bytes()
    assert (again / "train.bin").read_bytes() == train
    assert (other / "train.bin").read_bytes() != train
    assert read_text(folder, "valid")[:20] != read_text(folder, "test")
