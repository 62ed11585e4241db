"""Text (IMDB) and image (CIFAR-10), from the Hugging Face hub or a local copy.

Texts are their first bytes, pictures 32 x 32 levels of grey, row by row.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset_files import fingerprints, one_line, shards
from data_prep.errors import InputError
from data_prep.lra_release import label_of
from data_prep.sequence_folder import Example

# ITU-R BT.601, as the benchmark's own conversion
GREY = np.array([0.2989, 0.5870, 0.1140])
VALID_PICTURES = 5000


@dataclass(frozen=True)
class Rows:
    """The rows of ``train`` and ``test``, and what identifies them."""

    identity: dict[str, Any]
    rows: Callable[[str], Iterator[dict[str, Any]]]


def text_examples(rows: Rows, split: str, longest: int) -> Iterator[Example]:
    """IMDB's reviews; its test split is both valid and test, as in the benchmark."""
    name = "train" if split == "train" else "test"
    for number, row in enumerate(rows.rows(name)):
        where = f"{name}, row {number}"
        text = _column(row, ("text",), where).encode("utf-8")[:longest]
        if not text:
            raise InputError(f"{where}: an empty text")
        label = label_of(str(_column(row, ("label",), where)), 2, where)
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
        pixels = _pixels(_column(row, ("img", "image"), where), where)
        grey = np.rint(pixels[..., :3] @ GREY).clip(0, 255).astype(np.uint8)
        label = label_of(str(_column(row, ("label",), where)), 10, where)
        yield (grey.reshape(-1),), label


def _pixels(stored: Any, where: str) -> np.ndarray:
    """(32, 32, 3) of a decoded picture or of a parquet file's {"bytes": ...}."""
    from PIL import Image

    try:
        if isinstance(stored, dict):
            stored = Image.open(io.BytesIO(stored["bytes"]))
        pixels = np.asarray(stored.convert("RGB"))
    except (OSError, TypeError, KeyError, AttributeError, SyntaxError) as error:
        raise InputError(f"{where}: no picture: {one_line(error)}") from error
    if pixels.shape != (32, 32, 3):
        raise InputError(f"{where}: a picture of {pixels.shape}, expected (32, 32, 3)")
    return pixels


def _column(row: dict[str, Any], names: tuple[str, ...], where: str) -> Any:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise InputError(f"{where}: no column {' or '.join(names)}, only {list(row)}")


def hub_rows(name: str) -> Rows:
    """Rows of the data set ``name`` of the hub, through its cache."""
    import datasets

    try:
        loaded = datasets.load_dataset(name)
    except Exception as error:  # no base class covers the hub's and the net's errors
        raise InputError(
            f"{name}: cannot be loaded from the Hugging Face hub ({one_line(error)}); "
            f"give a local copy with --from-dir, {LAYOUTS}"
        ) from error
    return Rows({"hub": name}, lambda split: iter(loaded[split]))


LAYOUTS = (
    "saved with save_to_disk (dataset_dict.json) or the hub's parquet files "
    "(train-*.parquet, test-*.parquet), in the folder or one folder below"
)


def local_rows(folder: Path) -> Rows:
    """Rows of a copy in ``folder``; raises InputError where there is none."""
    if not folder.is_dir():
        raise InputError(f"--from-dir {folder}: no such folder")
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if (place / "dataset_dict.json").exists():
            return _saved_rows(place)
        if any(place.glob("*.parquet")):
            files = {name: shards(place, name) for name in ("train", "test")}
            identity = fingerprints(place, files["train"] + files["test"])
            return Rows(identity, partial(_rows_of, files))
    raise InputError(
        f"--from-dir {folder}: no copy of the data; accepted is one {LAYOUTS}"
    )


def _saved_rows(folder: Path) -> Rows:
    import datasets

    try:
        loaded = datasets.load_from_disk(str(folder))
    except Exception as error:  # arrow's, json's and datasets' own errors
        raise InputError(
            f"{folder}: the saved dataset cannot be read: {one_line(error)}"
        ) from error
    for name in ("train", "test"):
        if name not in loaded:
            raise InputError(f"{folder}: has no split {name}; it has {list(loaded)}")
    identity = fingerprints(folder, sorted(folder.rglob("*.arrow")))
    return Rows(identity, lambda split: iter(loaded[split]))


def _rows_of(files: dict[str, list[Path]], split: str) -> Iterator[dict[str, Any]]:
    import pyarrow
    from pyarrow import parquet

    for path in files[split]:
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(1000):
                    yield from batch.to_pylist()
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{path}: cannot be read: {one_line(error)}") from error
