"""Fingerprints of prepared data change with what training reads, not with the place."""

import shutil

import pytest

from fairseq_transnormer.data.fingerprints import split_fingerprint

FILES = ("input0/train.bin", "input0/train.idx", "label/train.label")


@pytest.fixture
def folder(tmp_path):
    """Labelled texts with numbers to predict, as data_prep lays them out."""
    for name in FILES:
        path = tmp_path / "numbers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1.0\n2.0\n")
    return tmp_path / "numbers"


@pytest.mark.parametrize("name", FILES)
def test_each_file_of_the_split_counts(folder, name):
    before = split_fingerprint([folder], "train")
    (folder / name).write_text("1.0\n3.0\n")
    assert split_fingerprint([folder], "train") != before


def test_the_place_does_not_count(folder, tmp_path):
    before = split_fingerprint([folder], "train")
    shutil.move(folder, tmp_path / "moved")
    assert split_fingerprint([tmp_path / "moved"], "train") == before


def test_parts_count_and_splits_of_similar_names_do_not(folder):
    before = split_fingerprint([folder], "train")
    (folder / "input0" / "train_extra.bin").write_text("3.0\n")
    (folder / "input0" / "training.idx").write_text("3.0\n")
    assert split_fingerprint([folder], "train") == before
    # fairseq reads train, train1, train2, ... as one
    (folder / "input0" / "train1.bin").write_text("3.0\n")
    assert split_fingerprint([folder], "train") != before
