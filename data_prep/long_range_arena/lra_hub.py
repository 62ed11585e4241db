"""Text (IMDB) and image (CIFAR-10), from the Hugging Face hub or a local copy.

Texts are their first bytes, pictures 32 x 32 levels of grey, row by row.
"""

from collections.abc import Iterator

import numpy as np

from data_prep.folders.dataset_rows import Rows, column, picture
from data_prep.folders.errors import InputError
from data_prep.folders.sequence_folder import Example
from data_prep.long_range_arena.lra_release import label_of

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
