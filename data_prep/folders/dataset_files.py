"""Files of the ``datasets`` library and of the Hugging Face hub: parquet and arrow."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data_prep.folders.errors import InputError
from fairseq_transnormer.data.fingerprints import file_sha256


def load_from_hub(name: str, *config: str, layouts: str) -> Any:
    """A data set of the Hugging Face hub as ``datasets`` has it, through its cache.

    Args:
        name: of the data set.
        config: its configuration, if it has several.
        layouts: of a local copy, for the message.

    Raises:
        InputError: it cannot be loaded.
    """
    import datasets

    try:
        return datasets.load_dataset(name, *config)
    except Exception as error:  # no base class covers the hub's and the net's errors
        raise InputError(
            f"{' '.join([name, *(f'({each})' for each in config)])}: cannot be loaded "
            f"from the Hugging Face hub ({one_line(error)}); give a local copy with "
            f"--from-dir, {layouts}"
        ) from error


def load_saved(folder: Path, splits: Iterable[str]) -> tuple[Any, dict[str, str]]:
    """What ``save_to_disk`` left in a folder, and the SHA-256 of its files by name.

    Raises:
        InputError: it cannot be read, or one of ``splits`` is missing.
    """
    import datasets

    try:
        loaded = datasets.load_from_disk(str(folder))
        missing = [name for name in splits if name not in loaded]
    except Exception as error:  # arrow's, json's and datasets' own errors
        raise InputError(
            f"{folder}: the saved dataset cannot be read: {one_line(error)}"
        ) from error
    if missing:
        raise InputError(f"{folder}: has no split {missing[0]}; it has {list(loaded)}")
    return loaded, fingerprints(folder, sorted(folder.rglob("*.arrow")))


def shards(folder: Path, name: str) -> list[Path]:
    """The parquet files of split ``name``: all of them, and none truncated."""
    found = sorted({*folder.glob(f"{name}-*.parquet"), *folder.glob(f"{name}.parquet")})
    if not found:
        raise InputError(f"{folder}: no file {name}-*.parquet or {name}.parquet")
    count = re.search(r"-of-(\d+)", found[0].name)
    if count and len(found) != int(count[1]):
        raise InputError(
            f"{folder}: {len(found)} of {int(count[1])} {name}-*.parquet files"
        )
    for path in found:
        with open(path, "rb") as file:
            start = file.read(4)
            file.seek(max(path.stat().st_size - 4, 0))
            if start != b"PAR1" or file.read() != b"PAR1":
                raise InputError(f"{path}: truncated, or not a parquet file")
    return found


@contextmanager
def readable(where: Path | str) -> Iterator[None]:
    """Turns what arrow raises on a damaged file into InputError."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{where}: cannot be read: {one_line(error)}") from error


def fingerprints(folder: Path, files: list[Path]) -> dict[str, str]:
    """SHA-256 of each file by its name in ``folder``."""
    return {str(path.relative_to(folder)): file_sha256(path) for path in files}


def one_line(error: Exception) -> str:
    """The error's type and the beginning of its text."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
