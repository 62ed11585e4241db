"""Text (IMDB) and image (CIFAR-10), from the Hugging Face hub or a local copy.

Texts are their first bytes, pictures 32 x 32 levels of grey, row by row.
"""

from collections.abc import Iterator

import numpy as np

from data_prep.folders.dataset_rows import Rows, column, picture
from data_prep.folders.errors import InputError
from data_prep.folders.hub_data import HubData
from data_prep.folders.sequence_folder import Example
from data_prep.long_range_arena.lra_release import label_of

TRAIN, TEST = "train-00000-of-00001.parquet", "test-00000-of-00001.parquet"
IMDB = HubData(
    "stanfordnlp/imdb",
    "e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
    files={
        TRAIN: "db47d16b5c297cc0dd625e519c81319c24c9149e70e8496de5475f6fa928342c",
        TEST: "b52e26e2f872d282ffac460bf9770b25ac6f102cda0e6ca7158df98c94e8b3da",
    },
    labels={"train": (12_500,) * 2, "test": (12_500,) * 2},
)
CIFAR10 = HubData(
    "uoft-cs/cifar10",
    "0b2714987fa478483af9968de7c934580d0bb9a2",
    files={
        TRAIN: "8428b53a88a11ac374111006708df51469e315a22ac6d66470afd9c78d2ae883",
        TEST: "841389e6f2d64f28bf17310e430aebac20ec3ba611a3c5e231dc93c645ce84de",
    },
    labels={"train": (5_000,) * 10, "test": (1_000,) * 10},
)
# ITU-R BT.601, as the benchmark's own conversion
GREY = np.array([0.2989, 0.5870, 0.1140])
VALID_PICTURES = 5000


def text_examples(rows: Rows, split: str, longest: int) -> Iterator[Example]:
    """IMDB's reviews; its test split is both valid and test, as in the benchmark."""
    name = "train" if split == "train" else "test"
    for number, row in enumerate(rows.rows(name)):
        where = f"{name}, row {number}"
        text = column(row, ("text",), where).encode("utf-8")[:longest]
        if not text:
            raise InputError(f"{where}: an empty text")
        label = label_of(str(column(row, ("label",), where)), 2, where)
        yield (np.frombuffer(text, np.uint8),), label


def image_examples(rows: Rows, split: str) -> Iterator[Example]:
    """CIFAR-10's pictures; the last 5,000 of its train split (or a tenth) are valid."""
    name = "test" if split == "test" else "train"
    examples = _pictures(rows, name)
    if split == "test":
        yield from examples
        return
    count = sum(1 for _ in rows.rows(name))
    border = count - min(VALID_PICTURES, count // 10)
    for number, example in enumerate(examples):
        if (number < border) == (split == "train"):
            yield example


def _pictures(rows: Rows, name: str) -> Iterator[Example]:
    for number, row in enumerate(rows.rows(name)):
        where = f"{name}, row {number}"
        pixels = picture(
            column(row, ("img", "image"), where), "RGB", (32, 32, 3), where
        )
        grey = np.rint(pixels @ GREY).clip(0, 255).astype(np.uint8)
        label = label_of(str(column(row, ("label",), where)), 10, where)
        yield (grey.reshape(-1),), label
