"""CIFAR-10 as the arena's grey pictures."""

import numpy as np
import pandas
import pytest
from PIL import Image

from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.labelled_sequences import LabelledSequences

from .commands import lra, verify

COUNTS = {"train": 20, "test": 4}
PICTURES = {
    split: np.random.default_rng(count).integers(0, 256, (count, 32, 32, 3), np.uint8)
    for split, count in COUNTS.items()
}


@pytest.fixture
def copy(tmp_path):
    import datasets

    folder = tmp_path / "cifar10" / "plain_text"
    folder.mkdir(parents=True)
    features = datasets.Features(
        img=datasets.Image(), label=datasets.ClassLabel(num_classes=10)
    )
    for split, pictures in PICTURES.items():
        columns = {
            "img": [Image.fromarray(picture) for picture in pictures],
            "label": [i % 10 for i in range(len(pictures))],
        }
        rows = datasets.Dataset.from_dict(columns, features=features)
        rows.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    return folder.parent


def arguments(source, dest):
    return list(map(str, ["--from-dir", source, "--dest", dest, "--allow-other-sizes"]))


@pytest.mark.parametrize("by_pandas", [False, True])
def test_pixels_are_grey_and_in_their_place(copy, tmp_path, by_pandas):
    for path in copy.rglob("*.parquet") if by_pandas else ():
        pandas.read_parquet(path).to_parquet(path)
    dest = tmp_path / "data"
    assert lra(["image", *arguments(copy, dest)]) == 0 == verify([dest])
    float32 = np.float32
    colours = PICTURES["test"].reshape(4, -1, 3).astype(float32)
    # as rgb_to_grayscale and convert_image_dtype of TensorFlow
    red, green, blue = (colours * float32(1 / 255)).transpose(2, 0, 1)
    grey = float32(0.2989) * red + float32(0.587) * green + float32(0.114) * blue
    grey = np.trunc(grey * float32(255.5))
    found = [LabelledSequences(dest, "test")[i] for i in range(4)]
    assert [each.label for each in found] == [0, 1, 2, 3]
    assert (np.stack([each.tokens[0] for each in found]) == grey).all()
    assert [len(LabelledSequences(dest, split)) for split in SPLITS] == [18, 2, 4]


def test_others_than_the_published_pictures_are_refused(copy, tmp_path, fails):
    given = ["image", *arguments(copy, tmp_path / "d")]
    given.remove("--allow-other-sizes")
    parts = [copy, "train-00000-of-00001.parquet", "--allow-other-sizes"]
    fails(lra, given, *parts, dest=tmp_path / "d")
