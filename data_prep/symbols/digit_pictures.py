"""Pictures of digits: scikit-learn's, and MNIST from the hub, a copy or its own files.

uint8 (count, height, width), by split.
"""

import gzip
import hashlib
import zlib
from pathlib import Path

import numpy as np

from data_prep.folders.dataset_rows import Rows, column, data_rows, picture
from data_prep.folders.errors import InputError
from data_prep.folders.hub_data import WAY_OUT, HubData
from data_prep.symbols.pixel_lines import Pictures
from fairseq_transnormer.data.fingerprints import file_sha256

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
    originals="MNIST's own files (train-images-idx3-ubyte[.gz] and so on)",
)
MNIST_SIZE = (28, 28)
# of MNIST's train split, the last ones; fewer of a shorter copy
VALID_PICTURES = 5000
ORIGINAL_FILES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
# SHA-256 of what is in them, compressed or not
ORIGINAL_SHA256 = {
    "train": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "test": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
}
# parts of scikit-learn's 1,797 pictures, which have no splits
HELD_OUT = {"valid": 180, "test": 360}


def sklearn_digits(seed: int) -> Pictures:
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
    size = {"height": 8, "width": 8, "levels": 17}
    identity = {"source": "sklearn", "seed": seed}
    return Pictures(size, identity, lambda split: iter(pictures[chosen[split]]))


def mnist_digits(folder: Path | None, other_sizes: bool) -> Pictures:
    """28 x 28 pixels of 0 ... 255.

    ``folder`` has the original files (.gz or not), a dataset saved by save_to_disk or
    the hub's parquet files; without one the hub is asked. Raises InputError, also for
    other pictures or labels than the published ones unless ``other_sizes`` are allowed.
    """
    files = None if folder is None else _original_files(folder)
    if files:
        if not other_sizes:
            for name, path in files.items():
                _require_original(name, path)
        identity = {path.name: file_sha256(path) for path in files.values()}
        read = {name: lambda p=path: read_idx(p) for name, path in files.items()}
    else:
        rows = data_rows(MNIST, folder, other_sizes)
        identity = rows.identity
        read = {name: lambda n=name: _of_rows(rows, n) for name in ORIGINAL_FILES}

    def pictures(split: str) -> np.ndarray:
        if split == "test":
            return read["test"]()
        both = read["train"]()
        border = len(both) - min(VALID_PICTURES, len(both) // 10)
        return both[:border] if split == "train" else both[border:]

    size = {"height": MNIST_SIZE[0], "width": MNIST_SIZE[1], "levels": 256}
    identity = {"source": "mnist", "files": identity}
    return Pictures(size, identity, lambda split: iter(pictures(split)))


def _original_files(folder: Path) -> dict[str, Path] | None:
    """MNIST's own files anywhere below ``folder``, None if there is not one of them."""
    # unpacked copies have folders of these names with the files in them
    found = {
        name: next(filter(Path.is_file, sorted(folder.rglob(f"{stem}*"))), None)
        for name, stem in ORIGINAL_FILES.items()
    }
    if not any(found.values()):
        return None
    for name, path in found.items():
        if path is None:
            raise InputError(f"--from-dir {folder}: no {ORIGINAL_FILES[name]}[.gz]")
    return found


def _require_original(name: str, path: Path) -> None:
    """Raises InputError unless the file has MNIST's own pictures of this split."""
    found, expected = len(read_idx(path)), sum(MNIST.labels[name])
    if found != expected:
        raise InputError(
            f"{path}: {found:,} pictures, expected {expected:,}; truncated or another "
            f"file ({WAY_OUT})"
        )
    digest = hashlib.sha256(_content(path)).hexdigest()
    if digest != ORIGINAL_SHA256[name]:
        raise InputError(
            f"{path}: sha256 of its content is {digest}, expected "
            f"{ORIGINAL_SHA256[name]}; damaged or another file ({WAY_OUT})"
        )


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def read_idx(path: Path) -> np.ndarray:
    """The pictures of an IDX file; raises InputError if it is damaged or another."""
    content = _content(path)
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
