"""Rows of a data set of the Hugging Face hub, from there or from a local copy."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.folders.dataset_files import (
    fingerprints,
    load_from_hub,
    load_saved,
    one_line,
    readable,
    shards,
)
from data_prep.folders.errors import InputError


@dataclass(frozen=True)
class Rows:
    """The rows of ``train`` and ``test``, and what identifies them."""

    identity: dict[str, Any]
    rows: Callable[[str], Iterator[dict[str, Any]]]


def hub_rows(name: str) -> Rows:
    """Rows of the data set ``name`` of the hub, through its cache."""
    return _rows_of_dataset(load_from_hub(name, layouts=LAYOUTS), {"hub": name})


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
            return _rows_of_dataset(*load_saved(place, ("train", "test")))
        if any(place.glob("*.parquet")):
            files = {name: shards(place, name) for name in ("train", "test")}
            identity = fingerprints(place, files["train"] + files["test"])
            return Rows(identity, partial(_rows_of_files, files))
    raise InputError(
        f"--from-dir {folder}: no copy of the data; accepted is one {LAYOUTS}"
    )


def _rows_of_dataset(loaded: Any, identity: dict[str, Any]) -> Rows:
    return Rows(identity, lambda split: iter(loaded[split]))


def _rows_of_files(
    files: dict[str, list[Path]], split: str
) -> Iterator[dict[str, Any]]:
    from pyarrow import parquet

    for path in files[split]:
        with readable(path), parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(1000):
                yield from batch.to_pylist()


def picture(stored: Any, mode: str, shape: tuple[int, ...], where: str) -> np.ndarray:
    """uint8 of this shape, of a decoded picture or of a parquet file's {"bytes": ...}.

    ``mode`` is PIL's, as RGB. Raises InputError for anything else.
    """
    from PIL import Image

    try:
        if isinstance(stored, dict):
            stored = Image.open(io.BytesIO(stored["bytes"]))
        pixels = np.asarray(stored.convert(mode))
    except (OSError, TypeError, KeyError, AttributeError, SyntaxError) as error:
        raise InputError(f"{where}: no picture: {one_line(error)}") from error
    if pixels.shape != shape:
        raise InputError(f"{where}: a picture of {pixels.shape}, expected {shape}")
    return pixels


def column(row: dict[str, Any], names: tuple[str, ...], where: str) -> Any:
    """The value of the first of these columns that a row has, else an InputError."""
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise InputError(f"{where}: no column {' or '.join(names)}, only {list(row)}")
