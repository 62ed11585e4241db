"""Pictures of digits as lines: every pixel is there, from every source."""

import gzip
import struct

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
    sheet = tmp_path / "sheet.png"
    splits = made(tmp_path / "digits", "--pictures", sheet)
    assert [len(splits[split]) for split in SPLITS] == [1257, 180, 360]
    from sklearn.datasets import load_digits

    expected = load_digits().data.astype(int)
    found = [line for split in SPLITS for line in splits[split]]
    assert sorted(found) == sorted(map(tuple, expected.tolist()))
    settings = read_listing(tmp_path / "digits" / "report.json")["settings"]
    assert (settings["height"], settings["width"], settings["levels"]) == (8, 8, 17)
    assert read_dictionary(tmp_path / "digits").indices["16"] == 4 + 16
    with Image.open(sheet) as picture:
        pixels = np.asarray(picture)
    # 8 pictures side by side, each enlarged three times in a frame and a border
    first = np.array(splits["train"][0]).reshape(8, 8) * 255 // 16
    assert (pixels[4 : 4 + 24 : 3, 4 : 4 + 24 : 3] == first).all()
    # another seed, another division
    other = made(tmp_path / "other", "--seed", 2)
    assert set(splits["test"]) != set(other["test"])


def pictures(count):
    return np.random.default_rng(count).integers(0, 256, (count, 28, 28), np.uint8)


def idx(pictures) -> bytes:
    return struct.pack(">4i", 2051, *pictures.shape) + pictures.tobytes()


@pytest.fixture(params=["originals", "unpacked", "compressed", "parquet"])
def mnist(request, tmp_path):
    folder = tmp_path / "mnist"
    if request.param == "parquet":
        import datasets

        features = datasets.Features(image=datasets.Image())
        rows = {
            name: datasets.Dataset.from_dict(
                {"image": [Image.fromarray(p) for p in pictures(count)]}, features
            )
            for name, count in (("train", 30), ("test", 4))
        }
        folder.mkdir()
        for name, each in rows.items():
            each.to_parquet(str(folder / f"{name}.parquet"))
        return folder
    (folder / "raw").mkdir(parents=True)
    for name, count in (("train", 30), ("t10k", 4)):
        path = folder / "raw" / f"{name}-images-idx3-ubyte"
        if request.param == "compressed":
            path = path.with_suffix(".gz")
            path.write_bytes(gzip.compress(idx(pictures(count))))
        elif request.param == "unpacked":
            path.mkdir()
            (path / path.name).write_bytes(idx(pictures(count)))
        else:
            path.write_bytes(idx(pictures(count)))
    return folder


def test_mnist_from_local_files(mnist, tmp_path):
    options = ["--source", "mnist", "--from-dir", mnist, "--allow-other-sizes"]
    splits = made(tmp_path / "data", *options)
    lines = {n: list(map(tuple, pictures(n).reshape(n, -1).tolist())) for n in (30, 4)}
    assert splits["train"] + splits["valid"] == lines[30]
    assert len(splits["valid"]) == 3 and splits["test"] == lines[4]
    assert read_listing(tmp_path / "data" / "report.json")["settings"]["levels"] == 256


@pytest.mark.parametrize(
    "content",
    [
        idx(pictures(3))[:-1],
        idx(np.zeros((2, 32, 32), np.uint8)),
        struct.pack(">4i", 2049, 1, 28, 28) + bytes(28 * 28),
    ],
)
def test_mnist_with_a_fault(content, tmp_path, fails):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(pictures(10)))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(content)
    arguments = ["--dest", tmp_path / "d", "--source", "mnist", "--from-dir", tmp_path]
    arguments += ["--allow-other-sizes"]
    path = tmp_path / "t10k-images-idx3-ubyte"
    fails(digits, arguments, path, "IDX", dest=tmp_path / "d")


def test_what_is_missing_is_named(tmp_path, fails):
    arguments = ["--dest", tmp_path / "d", "--from-dir", tmp_path]
    fails(digits, arguments, "--from-dir", "--source mnist")
    arguments += ["--source", "mnist"]
    fails(digits, arguments, "--from-dir", tmp_path, "parquet")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(pictures(2)))
    fails(digits, arguments, "train-images-idx3-ubyte", "only")
