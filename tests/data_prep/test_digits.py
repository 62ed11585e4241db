"""Pictures of digits as lines: every pixel is there, from every source."""

import numpy as np
import pytest
from PIL import Image

from data_prep.folders.staging import read_listing

from .binary_reading import read_dictionary, read_text
from .commands import digits, verify

SPLITS = ("train", "valid", "test")


def made(dest, *options):
    assert digits(["--dest", str(dest), *map(str, options)]) == 0
    assert verify([dest]) == 0
    return {
        split: [tuple(map(int, line.split())) for line in read_text(dest, split)]
        for split in SPLITS
    }


def test_scikit_learns_pictures_are_all_there_once(tmp_path):
    splits = made(tmp_path / "digits")
    assert [len(splits[split]) for split in SPLITS] == [1257, 180, 360]
    from sklearn.datasets import load_digits

    expected = load_digits().data.astype(int)
    found = [line for split in SPLITS for line in splits[split]]
    assert sorted(found) == sorted(map(tuple, expected.tolist()))
    settings = read_listing(tmp_path / "digits" / "report.json")["settings"]
    assert (settings["height"], settings["width"], settings["levels"]) == (8, 8, 17)
    assert read_dictionary(tmp_path / "digits").indices["16"] == 4 + 16
    # another seed, another division
    assert set(splits["test"]) != set(made(tmp_path / "other", "--seed", 2)["test"])


def pictures(count):
    return np.random.default_rng(count).integers(0, 256, (count, 28, 28), np.uint8)


@pytest.fixture
def mnist(tmp_path):
    import datasets

    folder = tmp_path / "mnist"
    folder.mkdir()
    features = datasets.Features(image=datasets.Image(), label=datasets.Value("int64"))
    for name, count in (("train", 30), ("test", 4)):
        images = [Image.fromarray(each) for each in pictures(count)]
        columns = {"image": images, "label": [0] * count}
        rows = datasets.Dataset.from_dict(columns, features)
        rows.to_parquet(str(folder / f"{name}.parquet"))
    return folder


def test_mnist_from_local_files(mnist, tmp_path):
    options = ["--source", "mnist", "--from-dir", mnist, "--allow-other-sizes"]
    splits = made(tmp_path / "data", *options)
    lines = {n: list(map(tuple, pictures(n).reshape(n, -1).tolist())) for n in (30, 4)}
    assert splits["train"] + splits["valid"] == lines[30]
    assert len(splits["valid"]) == 3 and splits["test"] == lines[4]
    assert read_listing(tmp_path / "data" / "report.json")["settings"]["levels"] == 256


def test_what_is_missing_is_named(tmp_path, fails):
    arguments = ["--dest", tmp_path / "d", "--from-dir", tmp_path]
    fails(digits, arguments, "--from-dir", "--source mnist")
    arguments += ["--source", "mnist"]
    fails(digits, arguments, "--from-dir", tmp_path, "parquet")
