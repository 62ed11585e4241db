"""``data_prep digits``: pictures as lines of pixels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np

from fairseq_transnormer.data import SPLITS

from ..folders.binary_folder import Split, prepare_folder, symbol_tokenizer
from ..folders.hub import HubData, labelled_data
from ..folders.options import Place, Seed, Source, refuse_given
from ..folders.pictures import hub_pictures

MNIST = HubData(
    "ylecun/mnist",
    "77f3279092a1c1579b2250db8eafed0ad422088c",
    files={
        "train": "f2c01285a9f89399335b00ee4e8d499dc4e46db5e39c74903ce5618d895eb3bf",
        "test": "d49fcf556ce25b002b302e318ce4a11098bbfe5d4499c3f35d7c72297c52374b",
    },
    labels={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
)
MNIST_FORM = ("image", "L", (28, 28))
# parts of scikit-learn's 1,797 pictures, which have no splits
HELD_OUT = {"valid": 180, "test": 360}


def digits(
    place: Place,
    copy: Source,
    source: Literal["sklearn", "mnist"] = "sklearn",
    seed: Seed = 1,
) -> None:
    """Prepare pictures of digits as sequences of pixels, for autoregressive models.

    A line is a picture, row by row; a pixel's symbol is its level. By default these are
    scikit-learn's 1,797 pictures of 8 x 8 pixels with 17 levels. 1,257 are for train,
    180 for valid and 360 for test.

    --source mnist is MNIST, 28 x 28 pixels with 256 levels, of the Hugging Face hub or
    of its parquet files in --from-dir. The last 5,000 pictures of its train split are
    valid; the seed changes nothing.
    """
    settings: dict[str, Any] = {"data": "digits", "height": 8, "width": 8, "levels": 17}
    settings["source"] = source
    if source == "mnist":
        loaded = labelled_data(MNIST, copy)
        size = {"height": 28, "width": 28, "levels": 256}
        settings |= {**size, "files": loaded.identity}

        def pictures(split: str) -> Iterable[np.ndarray]:
            return (pixels for pixels, _ in hub_pictures(loaded, split, MNIST_FORM))
    else:
        refuse_given("with --source mnist", **vars(copy))
        settings["seed"] = seed
        pictures = sklearn_digits(seed).__getitem__

    def lines(split: str) -> Iterator[str]:
        for picture in pictures(split):
            yield " ".join(map(str, picture.ravel().tolist()))

    splits = [Split(split, partial(lines, split)) for split in SPLITS]
    tokenizer = symbol_tokenizer(map(str, range(settings["levels"])))
    prepare_folder(place, settings, splits, tokenizer)


def sklearn_digits(seed: int) -> dict[str, np.ndarray]:
    """8 x 8 pixels of 0 ... 16, uint8 (count, 8, 8), divided at random by the seed."""
    from sklearn.datasets import load_digits

    pictures = load_digits().images.astype(np.uint8)
    order = np.random.default_rng(seed).permutation(len(pictures))
    train = len(pictures) - sum(HELD_OUT.values())
    parts = np.split(pictures[order], [train, train + HELD_OUT["valid"]])
    return dict(zip(SPLITS, parts, strict=True))
