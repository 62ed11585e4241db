"""CIFAR-10: from the Hugging Face hub, a copy of it, or its own archive."""

import codecs
import hashlib
import io
import pickle
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from data_prep.folders.dataset_files import one_line
from data_prep.folders.dataset_rows import LABEL, Rows, column, data_rows, picture
from data_prep.folders.errors import DAMAGED, InputError
from data_prep.folders.hub_data import WAY_OUT, HubData
from fairseq_transnormer.data.fingerprints import file_sha256

ARCHIVE = "cifar-10-python.tar.gz"
CIFAR10 = HubData(
    "uoft-cs/cifar10",
    "0b2714987fa478483af9968de7c934580d0bb9a2",
    files={
        "train-00000-of-00001.parquet": (
            "8428b53a88a11ac374111006708df51469e315a22ac6d66470afd9c78d2ae883"
        ),
        "test-00000-of-00001.parquet": (
            "841389e6f2d64f28bf17310e430aebac20ec3ba611a3c5e231dc93c645ce84de"
        ),
    },
    labels={"train": (5_000,) * 10, "test": (1_000,) * 10},
    originals=f"{ARCHIVE} or the files in it",
)
# the archive's files by split, with the MD5 that are published for them
BATCHES = {
    "train": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    "test": {"test_batch": "40351d587109b95175f43aff81a1287e"},
}
MD5 = {name: md5 for of_split in BATCHES.values() for name, md5 in of_split.items()}
# height, width, channels: red, green, blue
SHAPE = (32, 32, 3)
# of the train split, the last ones; fewer of a shorter copy
VALID_PICTURES = 5000


def cifar10_rows(source: Path | None, other_sizes: bool) -> Rows:
    """CIFAR-10's rows: an image, and its label.

    Args:
        source: the archive, or a folder that has it, the files in it, a data set saved
            by save_to_disk or the hub's parquet files; without one the hub is asked.
        other_sizes: whether to take other pictures than the published ones.

    Raises:
        InputError: there are none, they are damaged, or others.
    """
    if source is not None:
        files = _original_files(source)
        if files:
            return _original_rows(source, files, other_sizes)
    return data_rows(CIFAR10, source, other_sizes)


def cifar10_pictures(rows: Rows, split: str) -> Iterator[tuple[np.ndarray, Any, str]]:
    """The pictures of train, valid or test in their order.

    Yields:
        pixels, uint8 (32, 32, 3); the label; where it stands, for messages.
    """
    name = "test" if split == "test" else "train"
    count = sum(1 for _ in rows.labels(name))
    border = count - min(VALID_PICTURES, count // 10)
    for number, row in enumerate(rows.rows(name)):
        if split == "test" or (number < border) == (split == "train"):
            where = f"{name}, row {number}"
            pixels = picture(column(row, ("img", "image"), where), "RGB", SHAPE, where)
            yield pixels, column(row, (LABEL,), where), where


def _original_files(source: Path) -> list[Path]:
    """The archive, or its files anywhere below a folder; none if there are none."""
    if source.is_file():
        return [source]
    found = {name: next(iter(sorted(source.rglob(name))), None) for name in MD5}
    batches = [path for path in found.values() if path]
    return batches or sorted(source.rglob(ARCHIVE))[:1]


@dataclass(frozen=True)
class _Batch:
    """pixels, uint8 (count, 32, 32, 3), and as many labels."""

    pixels: np.ndarray
    labels: list[int]


def _original_rows(source: Path, files: list[Path], other_sizes: bool) -> Rows:
    batches = {
        name: _batch(name, content, where, other_sizes)
        for path in files
        for name, content, where in _contents(path)
    }
    for name in MD5:
        if name not in batches:
            raise InputError(
                f"--from-dir {source}: no {name}; allowed: all of {', '.join(MD5)}"
            )

    def rows(split: str) -> Iterator[dict[str, Any]]:
        from PIL import Image

        for name in BATCHES[split]:
            for pixels, label in zip(
                batches[name].pixels, batches[name].labels, strict=True
            ):
                yield {"img": Image.fromarray(pixels), LABEL: label}

    def labels(split: str) -> list[int]:
        return [label for name in BATCHES[split] for label in batches[name].labels]

    identity = {path.name: file_sha256(path) for path in files}
    return Rows(str(source), identity, rows, labels)


def _contents(path: Path) -> Iterator[tuple[str, bytes, str]]:
    """Name, content and place of the batches in a file, in one pass of an archive."""
    try:
        if path.name in MD5:
            yield path.name, path.read_bytes(), str(path)
            return
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in MD5 and (file := archive.extractfile(member)):
                    yield name, file.read(), f"{path}: {member.name}"
    # a link in the archive may lead out of it, or to itself
    except (*DAMAGED, LookupError, RecursionError) as error:
        raise InputError(
            f"{path}: cannot be read: {one_line(error)}; truncated? allowed: "
            f"{CIFAR10.originals}"
        ) from error


def _batch(name: str, content: bytes, where: str, other_sizes: bool) -> _Batch:
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if not other_sizes and digest != MD5[name]:
        raise InputError(
            f"{where}: md5 is {digest}, expected {MD5[name]}; damaged or another file "
            f"({WAY_OUT})"
        )
    try:
        found = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
        pixels, labels = found["data"], list(found["labels"])
    except Exception as error:  # what is damaged raises nearly anything
        raise InputError(f"{where}: no batch of pictures: {one_line(error)}") from error
    size = int(np.prod(SHAPE))
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape != (len(labels), size)
        or not labels
    ):
        raise InputError(
            f"{where}: data of {getattr(pixels, 'dtype', type(pixels).__name__)}, "
            f"{getattr(pixels, 'shape', '')} for {len(labels)} labels; expected uint8, "
            f"{size} for each label"
        )
    # stored channel by channel
    height, width, channels = SHAPE
    planes = pixels.reshape(-1, channels, height, width)
    return _Batch(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels)


_RECONSTRUCT = np.zeros(0).__reduce__()[0]


class _ArraysOnly(pickle.Unpickler):
    """Unpickles arrays, and nothing with which a file could run commands."""

    ALLOWED = {
        ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        # bytes, in what Python 3 writes for Python 2
        ("_codecs", "encode"): codecs.encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None
