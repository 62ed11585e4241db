"""Prepares pictures of digits as sequences of pixels, for autoregressive models.

A line is a picture row by row; a pixel's symbol is its level. By default the 1,797
pictures that come with scikit-learn, 8 x 8 of 17 levels, 1,257 for train, 180 for valid
and 360 for test. --source mnist is MNIST, 28 x 28 of 256 levels, from the Hugging Face
hub or --from-dir; the last 5,000 pictures of its train split are valid.
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np

from data_prep.folders.command import (
    add_destination,
    add_other_sizes,
    add_seed,
    add_source,
    command,
    refuse_given,
)
from data_prep.folders.downloads import unpacked
from data_prep.folders.hub import WAY_OUT, HubData, labelled_data
from data_prep.folders.pictures import add_pictures, pixels_of, train_pictures
from data_prep.symbols.pixel_lines import prepare_pictures
from fairseq_transnormer.data.fingerprints import file_sha256

SOURCES = ("sklearn", "mnist")
MNIST = HubData(
    "ylecun/mnist",
    "77f3279092a1c1579b2250db8eafed0ad422088c",
    files={
        "train-00000-of-00001.parquet": (
            "f2c01285a9f89399335b00ee4e8d499dc4e46db5e39c74903ce5618d895eb3bf"
        ),
        "test-00000-of-00001.parquet": (
            "d49fcf556ce25b002b302e318ce4a11098bbfe5d4499c3f35d7c72297c52374b"
        ),
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

# uint8 (count, height, width), by split
Pictures = dict[str, np.ndarray]


def sklearn_digits(seed: int) -> Pictures:
    """8 x 8 pixels of 0 ... 16, put into splits in the random order of the seed."""
    from sklearn.datasets import load_digits

    pictures = load_digits().images.astype(np.uint8)
    order = np.random.default_rng(seed).permutation(len(pictures))
    train = len(pictures) - sum(HELD_OUT.values())
    parts = np.split(pictures[order], [train, train + HELD_OUT["valid"]])
    return dict(zip(("train", "valid", "test"), parts, strict=True))


def mnist_digits(
    folder: Path | None, other_sizes: bool
) -> tuple[Pictures, dict[str, str]]:
    """28 x 28 pixels of 0 ... 255, and what identifies their source.

    Args:
        folder: has MNIST's own files (.gz or not) or the hub's parquet files; without
            one the hub is asked.
        other_sizes: whether to take other pictures than the published ones.
    """
    files = _original_files(folder) if folder else {}
    if files:
        identity = {path.name: file_sha256(path) for path in files.values()}
        found = {
            name: read_idx(path, None if other_sizes else ORIGINAL_SHA256[name])
            for name, path in files.items()
        }
    else:
        loaded = labelled_data(MNIST, folder, other_sizes)
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
    """MNIST's own files anywhere below ``folder``."""
    # unpacked copies have folders of these names with the files in them
    found = {
        name: next(filter(Path.is_file, sorted(folder.rglob(f"{stem}*"))), None)
        for name, stem in ORIGINAL_FILES.items()
    }
    files = {name: path for name, path in found.items() if path}
    if files and len(files) < len(found):
        raise ValueError(f"--from-dir {folder}: only {next(iter(files.values()))}")
    return files


def read_idx(path: Path, sha256: str | None) -> np.ndarray:
    """The pictures of an IDX file; ``sha256`` is that of its content, if it counts."""
    content = unpacked(path)
    if content[:4] != b"\0\0\x08\x03" or len(content) < 16:
        raise ValueError(f"{path}: no IDX file of pictures")
    shape = np.frombuffer(content, ">u4", 3, 4)
    if tuple(shape[1:]) != MNIST_SIZE or len(content) != 16 + shape.prod(dtype=int):
        raise ValueError(
            f"{path}: {len(content)} bytes for pictures of {shape}; expected 28 x 28 "
            "and a byte a pixel; truncated?"
        )
    if sha256 and hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{path}: not MNIST's sha256, {sha256} ({WAY_OUT})")
    return np.frombuffer(content, np.uint8, offset=16).reshape(shape)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_destination(parser)
    parser.add_argument("--source", choices=SOURCES, default=SOURCES[0])
    add_source(parser, "MNIST's original files (.gz or not) or the hub's parquet files")
    add_seed(parser, "sklearn: of the splits (default: 1)", None)
    add_other_sizes(parser, "MNIST's published files and numbers of each label")
    add_pictures(parser)


def _prepare(options: argparse.Namespace) -> None:
    if options.source == "mnist":
        refuse_given(options, ["seed"], "with --source sklearn")
        pictures, files = mnist_digits(options.from_dir, options.allow_other_sizes)
        identity, levels = {"source": "mnist", "files": files}, 256
    else:
        refuse_given(options, ["from_dir"], "with --source mnist")
        seed = 1 if options.seed is None else options.seed
        pictures = sklearn_digits(seed)
        identity, levels = {"source": "sklearn", "seed": seed}, 17
    height, width = pictures["train"].shape[1:]
    size = {"height": height, "width": width, "levels": levels}
    prepare_pictures(
        options, "digits", size, identity, lambda split: iter(pictures[split])
    )


main = command("digits", __doc__, _add_options, _prepare)
