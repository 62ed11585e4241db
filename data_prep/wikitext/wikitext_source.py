"""WikiText-103 from wherever it is: the hub, the original files, or a saved copy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from data_prep.folders.dataset_files import (
    fingerprints,
    load_from_hub,
    load_saved,
    readable,
    shards,
)
from data_prep.folders.errors import InputError
from data_prep.folders.hub_data import HubData
from data_prep.folders.text_files import read_lines, scan

HUB_DATA = HubData("Salesforce/wikitext", "b08601e04326c79dfdd32d625aee71d232d685c3")
# fairseq's names of the splits and the hub's.
SPLITS = {"train": "train", "valid": "validation", "test": "test"}
ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class Version:
    """One of the corpus's two versions, with the names it has in each form."""

    config: str
    folder: str
    suffix: str


TOKENS = Version("wikitext-103-v1", "wikitext-103", "tokens")
RAW = Version("wikitext-103-raw-v1", "wikitext-103-raw", "raw")


@dataclass(frozen=True)
class Source:
    """The corpus's lines by split, and what identifies it for the settings."""

    identity: dict[str, Any]
    lines: Callable[[str], Iterator[str]]


def local_source(folder: Path, version: Version) -> Source:
    """The copy in ``folder``, in any of the forms that ``layouts`` describes."""
    if not folder.is_dir():
        raise InputError(f"--from-dir {folder}: no such folder")
    for place in (folder, folder / version.folder, folder / version.config):
        if any((place / _original(split, version)).exists() for split in SPLITS):
            return _original_files(place, version)
        if (place / "dataset_dict.json").exists():
            return _saved_dataset(place)
        if any(place.glob("*.parquet")):
            return _parquet_files(place)
    raise InputError(
        f"--from-dir {folder}: holds no copy of {version.config}; {layouts(version)}"
    )


def layouts(version: Version) -> str:
    """The accepted forms of a local copy, as one sentence."""
    names = ", ".join(_original(split, version) for split in SPLITS)
    return (
        f"accepted are the original files ({names}), a dataset saved with "
        "save_to_disk (dataset_dict.json), or the hub's parquet files "
        f"(train-*.parquet, validation-*.parquet, test-*.parquet), in the folder "
        f"itself or in its subfolder {version.folder} or {version.config}"
    )


def hub_source(version: Version) -> Source:
    """The corpus from the Hugging Face hub, through its cache."""
    loaded = load_from_hub(HUB_DATA, version.config, layouts=layouts(version))
    return Source(
        HUB_DATA.identity(version.config),
        lambda split: _rows(loaded[SPLITS[split]], HUB_DATA.name),
    )


def _original(split: str, version: Version) -> str:
    return f"wiki.{split}.{version.suffix}"


def _original_files(folder: Path, version: Version) -> Source:
    files = {}
    for split in SPLITS:
        path = folder / _original(split, version)
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        files[split] = scan(path)
    identity = {split: file.fingerprint() for split, file in files.items()}
    return Source(identity, lambda split: read_lines([files[split]]))


def _saved_dataset(folder: Path) -> Source:
    loaded, identity = load_saved(folder, SPLITS.values())
    return Source(
        identity, lambda split: _rows(loaded[SPLITS[split]], folder / SPLITS[split])
    )


def _parquet_files(folder: Path) -> Source:
    files = {split: shards(folder, name) for split, name in SPLITS.items()}
    paths = [path for shard_paths in files.values() for path in shard_paths]
    return Source(
        fingerprints(folder, paths),
        lambda split: chain.from_iterable(map(_parquet_rows, files[split])),
    )


def _parquet_rows(path: Path) -> Iterator[str]:
    """Read in place: ``datasets`` would first copy the file into its cache."""
    from pyarrow import parquet

    with readable(path), parquet.ParquetFile(path) as file:
        _require_text_column(path, file.schema_arrow.names)
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=["text"]):
            yield from batch["text"].to_pylist()


def _rows(dataset: Any, where: Path | str) -> Iterator[str]:
    """The rows of column ``text``; the hub's rows end in a newline or are empty."""
    _require_text_column(where, dataset.column_names)
    with readable(where):
        for batch in dataset.iter(batch_size=ROWS_AT_ONCE):
            yield from batch["text"]


def _require_text_column(where: Path | str, names: list[str]) -> None:
    if "text" not in names:
        raise InputError(f"{where}: no column 'text', only {names}")
