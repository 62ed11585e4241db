"""``data_prep digits`` and ``cifar10``: pictures as lines of pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.fingerprints import file_sha256

from ..folders.binary_folder import Split, prepare_folder, symbol_tokenizer
from ..folders.downloads import unpacked
from ..folders.hub import WAY_OUT, HubData, labelled_data
from ..folders.options import Pictures, Place, Source, refuse_given
from ..folders.pictures import (
    CIFAR10,
    CIFAR10_SHAPE,
    SHOWN,
    cifar10_pictures,
    pixels_of,
    train_pictures,
    write_sheet,
)

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
MNIST_SIZE = (28, 28)
ORIGINAL_FILES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
# SHA-256 of what is in them, compressed or not
ORIGINAL_SHA256 = {
    "train": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "test": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
}
# parts of scikit-learn's 1,797 pictures, which have no splits
HELD_OUT = {"valid": 180, "test": 360}


def digits(
    place: Place,
    copy: Source,
    source: Literal["sklearn", "mnist"] = "sklearn",
    seed: int | None = None,
    pictures: Pictures = None,
) -> None:
    """Prepare pictures of digits as sequences of pixels, for autoregressive models.

    A line is a picture, row by row; a pixel's symbol is its level. By default these are
    scikit-learn's 1,797 pictures of 8 x 8 pixels with 17 levels. 1,257 are for train,
    180 for valid and 360 for test. --source mnist is MNIST, 28 x 28 pixels with 256
    levels, from the Hugging Face hub or --from-dir. That folder has MNIST's original
    files (.gz or not) or the hub's parquet files. The last 5,000 pictures of its train
    split are valid.

    Args:
        seed: of the splits, with --source sklearn; None: 1.
    """
    identity: dict[str, Any] = {"source": source}
    if source == "mnist":
        refuse_given("with --source sklearn", seed=seed)
        found, identity["files"] = mnist_digits(copy)
        levels = 256
    else:
        refuse_given("with --source mnist", from_dir=copy.from_dir)
        identity["seed"] = 1 if seed is None else seed
        found, levels = sklearn_digits(identity["seed"]), 17
    height, width = found["train"].shape[1:]
    size = {"height": height, "width": width, "levels": levels}
    of_split = lambda split: iter(found[split])  # noqa: E731
    _prepare(place, "digits", size, identity, of_split, pictures)


def cifar10(place: Place, copy: Source, pictures: Pictures = None) -> None:
    """Prepare CIFAR-10's pictures as sequences of pixels, for autoregressive models.

    A line is a picture row by row, and of each pixel its red, green and blue, one
    symbol after the other: 32 x 32 x 3 = 3,072 symbols of 256 levels. The pictures come
    from the Hugging Face hub, or from its parquet files in --from-dir; the last 5,000
    of the train split are valid.
    """
    loaded = labelled_data(CIFAR10, copy)
    size = dict(zip(("height", "width", "channels"), CIFAR10_SHAPE, strict=True))
    _prepare(
        place,
        "cifar10",
        size | {"levels": 256},
        {"files": loaded.identity},
        lambda split: (pixels for pixels, _ in cifar10_pictures(loaded, split)),
        pictures,
    )


def _prepare(
    place: Place,
    name: str,
    size: dict[str, int],
    identity: dict[str, Any],
    of_split: Callable[[str], Iterator[np.ndarray]],
    sheet: Path | None,
) -> None:
    """The binary data, and a sheet of pictures if one is wanted.

    Args:
        size: "height" and "width" in pixels, "levels" of each; of colour pictures
            "channels", too.
        identity: identifies the pictures.
        of_split: gives a split's pictures one by one, uint8 (height, width) or
            (height, width, channels).
    """

    def lines(split: str) -> Iterator[str]:
        for picture in of_split(split):
            yield " ".join(map(str, picture.ravel().tolist()))

    if sheet and sheet.resolve().is_relative_to(place.dest.resolve()):
        raise ValueError(f"--pictures {sheet} lies in --dest; give a place elsewhere")
    splits = [Split(split, lambda split=split: lines(split)) for split in SPLITS]
    tokenizer = symbol_tokenizer(map(str, range(size["levels"])))
    prepare_folder(place, {"data": name} | size | identity, splits, tokenizer)
    if sheet:
        shown = np.stack([*islice(of_split("train"), SHOWN)]).astype(int)
        shades = (shown * 255 // (size["levels"] - 1)).astype(np.uint8)
        write_sheet(shades, np.zeros(len(shades), int), sheet, place.overwrite)


def sklearn_digits(seed: int) -> dict[str, np.ndarray]:
    """8 x 8 pixels of 0 ... 16, uint8 (count, 8, 8), put into splits in the random
    order of the seed."""
    from sklearn.datasets import load_digits

    pictures = load_digits().images.astype(np.uint8)
    order = np.random.default_rng(seed).permutation(len(pictures))
    train = len(pictures) - sum(HELD_OUT.values())
    parts = np.split(pictures[order], [train, train + HELD_OUT["valid"]])
    return dict(zip(SPLITS, parts, strict=True))


def mnist_digits(copy: Source) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """uint8 (count, 28, 28) by split, and what identifies their source."""
    files = _original_files(copy.from_dir) if copy.from_dir else {}
    if files:
        identity = {path.name: file_sha256(path) for path in files.values()}
        found = {
            name: read_idx(
                path, None if copy.allow_other_sizes else ORIGINAL_SHA256[name]
            )
            for name, path in files.items()
        }
    else:
        loaded = labelled_data(MNIST, copy)
        identity = loaded.identity
        found = {
            name: np.stack(
                [
                    pixels_of(picture, "L", MNIST_SIZE, f"{name}, row {number}")
                    for number, (picture,) in enumerate(loaded.rows(name, "image"))
                ]
            )
            for name in ORIGINAL_FILES
        }
    train, valid = np.split(found["train"], [train_pictures(len(found["train"]))])
    return {"train": train, "valid": valid, "test": found["test"]}, identity


def _original_files(folder: Path) -> dict[str, Path]:
    """MNIST's own files anywhere below ``folder``: both, or none."""
    # unpacked copies have folders of these names with the files in them
    found = {
        name: next(filter(Path.is_file, sorted(folder.rglob(f"{stem}*"))), None)
        for name, stem in ORIGINAL_FILES.items()
    }
    files = {name: path for name, path in found.items() if path}
    if len(files) == 1:
        raise ValueError(f"--from-dir {folder}: only {next(iter(files.values()))}")
    return files


def read_idx(path: Path, sha256: str | None) -> np.ndarray:
    """The pictures of an IDX file; ``sha256`` is that of its content, if it counts."""
    content = unpacked(path)
    if sha256 and hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{path}: not MNIST's sha256, {sha256} ({WAY_OUT})")
    pixels = np.frombuffer(content, np.uint8, offset=16)
    if content[:4] != b"\0\0\x08\x03" or pixels.size % np.prod(MNIST_SIZE):
        raise ValueError(f"{path}: no IDX file of pictures, or truncated")
    return pixels.reshape(-1, *MNIST_SIZE)
