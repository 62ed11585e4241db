"""Pictures of digits: scikit-learn's, and MNIST from the hub, a copy or its own files.

uint8 (count, height, width), by split.
"""

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.folders.dataset_rows import Rows, column, hub_rows, local_rows, picture
from data_prep.folders.errors import InputError
from fairseq_transnormer.data.fingerprints import file_sha256

HUB_NAME = "ylecun/mnist"
MNIST_SIZE = (28, 28)
# of MNIST's train split, the last ones; fewer of a shorter copy
VALID_PICTURES = 5000
ORIGINAL_FILES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
# parts of scikit-learn's 1,797 pictures, which have no splits
HELD_OUT = {"valid": 180, "test": 360}


@dataclass(frozen=True)
class Digits:
    """height, width, levels of a picture; what identifies them; pictures by split."""

    height: int
    width: int
    levels: int
    identity: dict[str, Any]
    pictures: Callable[[str], np.ndarray]


def sklearn_digits(seed: int) -> Digits:
    """8 x 8 pixels of 0 ... 16, put into splits in the random order of the seed."""
    from sklearn.datasets import load_digits

    pictures = load_digits().images.astype(np.uint8)
    order = np.random.default_rng(seed).permutation(len(pictures))
    train = len(pictures) - sum(HELD_OUT.values())
    border = train + HELD_OUT["valid"]
    chosen = dict(
        zip(("train", "valid"), np.split(order, [train, border]), strict=False)
    )
    chosen["test"] = order[border:]
    return Digits(
        8, 8, 17, {"source": "sklearn", "seed": seed}, lambda s: pictures[chosen[s]]
    )


def mnist_digits(folder: Path | None) -> Digits:
    """28 x 28 pixels of 0 ... 255.

    ``folder`` has the original files (.gz or not), a dataset saved by save_to_disk or
    the hub's parquet files; without one the hub is asked. Raises InputError.
    """
    files = None if folder is None else _original_files(folder)
    if files:
        identity = {path.name: file_sha256(path) for path in files.values()}
        read = {name: lambda p=path: read_idx(p) for name, path in files.items()}
    else:
        rows = hub_rows(HUB_NAME) if folder is None else local_rows(folder)
        identity = rows.identity
        read = {name: lambda n=name: _of_rows(rows, n) for name in ORIGINAL_FILES}

    def pictures(split: str) -> np.ndarray:
        if split == "test":
            return read["test"]()
        both = read["train"]()
        border = len(both) - min(VALID_PICTURES, len(both) // 10)
        return both[:border] if split == "train" else both[border:]

    identity = {"source": "mnist", "files": identity}
    return Digits(*MNIST_SIZE, 256, identity, pictures)


def _original_files(folder: Path) -> dict[str, Path] | None:
    """MNIST's own files anywhere below ``folder``, None if there is not one of them."""
    found = {
        name: next(iter(sorted(folder.rglob(f"{stem}*"))), None)
        for name, stem in ORIGINAL_FILES.items()
    }
    if not any(found.values()):
        return None
    for name, path in found.items():
        if path is None:
            raise InputError(f"--from-dir {folder}: no {ORIGINAL_FILES[name]}[.gz]")
    return found


def read_idx(path: Path) -> np.ndarray:
    """The pictures of an IDX file; raises InputError if it is damaged or another."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if content[:4] != b"\0\0\x08\x03" or len(content) < 16:
        raise InputError(f"{path}: no IDX file of pictures")
    shape = np.frombuffer(content, ">u4", 3, 4)
    if tuple(shape[1:]) != MNIST_SIZE or len(content) != 16 + shape.prod(dtype=int):
        raise InputError(
            f"{path}: {len(content)} bytes for {shape[0]} pictures of {shape[1]} x "
            f"{shape[2]}; expected 28 x 28 and a byte a pixel; truncated?"
        )
    return np.frombuffer(content, np.uint8, offset=16).reshape(shape)


def _of_rows(rows: Rows, name: str) -> np.ndarray:
    found = []
    for number, row in enumerate(rows.rows(name)):
        where = f"{name}, row {number}"
        stored = column(row, ("image", "img"), where)
        found.append(picture(stored, "L", MNIST_SIZE, where))
    if not found:
        raise InputError(f"{name}: no picture at all")
    return np.stack(found)
