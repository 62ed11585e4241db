"""Rows of a data set of the Hugging Face hub, from there or from a local copy."""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
from data_prep.folders.hub_data import HubData

LAYOUTS = (
    "saved with save_to_disk (dataset_dict.json) or the hub's parquet files "
    "(train-*.parquet, test-*.parquet), in the folder or one folder below"
)
LABEL = "label"
ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class Rows:
    """The rows of ``train`` and ``test``, their labels, and what identifies them.

    ``where`` names the source in messages.
    """

    where: str
    identity: dict[str, Any]
    rows: Callable[[str], Iterator[dict[str, Any]]]
    labels: Callable[[str], Iterable[Any]]


def data_rows(data: HubData, folder: Path | None, other_sizes: bool) -> Rows:
    """Rows of ``data``, from a copy in ``folder`` or, without one, from the hub.

    Raises InputError where there is none, or, unless ``other_sizes`` are allowed, where
    it is not what is published.
    """
    rows = _hub_rows(data) if folder is None else _local_rows(data, folder)
    if not other_sizes:
        data.require_files(rows.where, rows.identity)
        for split in data.labels:
            data.require_labels(rows.where, split, rows.labels(split))
    return rows


def _hub_rows(data: HubData) -> Rows:
    loaded = load_from_hub(data, layouts=_layouts(data))
    return _rows_of_dataset(data.name, loaded, data.identity())


def _layouts(data: HubData) -> str:
    return LAYOUTS + (f", or {data.originals}" if data.originals else "")


def _local_rows(data: HubData, folder: Path) -> Rows:
    if not folder.is_dir():
        raise InputError(f"--from-dir {folder}: no such folder")
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if (place / "dataset_dict.json").exists():
            return _rows_of_dataset(str(place), *load_saved(place, ("train", "test")))
        if any(place.glob("*.parquet")):
            return _parquet_files(place)
    raise InputError(
        f"--from-dir {folder}: no copy of the data; accepted is one {_layouts(data)}"
    )


def _parquet_files(folder: Path) -> Rows:
    files = {name: shards(folder, name) for name in ("train", "test")}
    return Rows(
        str(folder),
        fingerprints(folder, files["train"] + files["test"]),
        lambda split: _rows_of_files(files[split]),
        lambda split: _labels_of_files(files[split]),
    )


def _rows_of_dataset(where: str, loaded: Any, identity: dict[str, Any]) -> Rows:
    def labels(split: str) -> Iterable[Any]:
        names = loaded[split].column_names
        if LABEL not in names:
            raise InputError(_no_label(f"{where}: {split}", names))
        return loaded[split][LABEL]

    return Rows(where, identity, lambda split: iter(loaded[split]), labels)


def _rows_of_files(files: list[Path]) -> Iterator[dict[str, Any]]:
    from pyarrow import parquet

    for path in files:
        with readable(path), parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield from batch.to_pylist()


def _labels_of_files(files: list[Path]) -> Iterator[Any]:
    from pyarrow import parquet

    for path in files:
        with readable(path), parquet.ParquetFile(path) as file:
            if LABEL not in file.schema_arrow.names:
                raise InputError(_no_label(path, file.schema_arrow.names))
            for batch in file.iter_batches(columns=[LABEL]):
                yield from batch[LABEL].to_pylist()


def _no_label(where: Path | str, names: list[str]) -> str:
    return f"{where}: no column {LABEL!r}, only {names}"


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
