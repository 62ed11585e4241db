"""Text (IMDB) and image (CIFAR-10), from the Hugging Face hub or a local copy.

Texts are their first bytes, pictures 32 x 32 levels of grey, row by row.
"""

from collections.abc import Iterator

import numpy as np

from data_prep.folders.cifar10_source import cifar10_pictures
from data_prep.folders.dataset_rows import Rows, column
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
# ITU-R BT.601, as the benchmark's own conversion
GREY = np.array([0.2989, 0.5870, 0.1140])


def text_examples(rows: Rows, split: str, longest: int) -> Iterator[Example]:
    """IMDB's reviews; its test split is both valid and test, as in the benchmark."""
    name = "train" if split == "train" else "test"
    for number, row in enumerate(rows.rows(name)):
        where = f"{name}, row {number}"
        text = column(row, ("text",), where)
        if not isinstance(text, str):
            raise InputError(f"{where}: text {text!r:.40}; allowed: a string")
        if not text:
            raise InputError(f"{where}: an empty text")
        label = label_of(str(column(row, ("label",), where)), 2, where)
        yield (np.frombuffer(text.encode("utf-8")[:longest], np.uint8),), label


def image_examples(rows: Rows, split: str) -> Iterator[Example]:
    """CIFAR-10's pictures; the last 5,000 of its train split (or a tenth) are valid."""
    for pixels, label, where in cifar10_pictures(rows, split):
        grey = np.rint(pixels @ GREY).clip(0, 255).astype(np.uint8)
        yield (grey.reshape(-1),), label_of(str(label), 10, where)
