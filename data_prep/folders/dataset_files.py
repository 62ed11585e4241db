"""Files of the ``datasets`` library and of the Hugging Face hub: parquet and arrow."""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data_prep.folders.errors import InputError
from data_prep.folders.hub_data import HubData
from fairseq_transnormer.data.fingerprints import file_sha256

# before the hub is asked again
RETRY_SECONDS = (1, 2, 4)
# what a server answers that is overloaded or restarts
BUSY = (429, 500, 502, 503, 504)


def load_from_hub(data: HubData, *config: str, layouts: str) -> Any:
    """A data set of the Hugging Face hub as ``datasets`` has it, through its cache.

    The hub's client resumes and retries files, not the questions before them; so the
    whole is tried again where the network failed. What is in the cache stays.

    Args:
        data: which one, at which revision.
        config: its configuration, if it has several.
        layouts: of a local copy, for the message.

    Raises:
        InputError: it cannot be loaded.
    """
    import datasets

    waits = iter(RETRY_SECONDS)
    while True:
        try:
            return datasets.load_dataset(data.name, *config, revision=data.revision)
        except Exception as error:  # no base class for the hub's and the net's errors
            wait = next(waits, None) if _may_pass(error) else None
            if wait is None:
                name = " ".join([data.name, *(f"({each})" for each in config)])
                raise InputError(
                    f"{name}: cannot be loaded from the Hugging Face hub "
                    f"({one_line(error)}); give a local copy with --from-dir, {layouts}"
                ) from error
        time.sleep(wait)


def _may_pass(error: Exception) -> bool:
    """Whether it is a failure of the network or the server that may be over soon."""
    import datasets

    if datasets.config.HF_HUB_OFFLINE:
        return False
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return status in BUSY
    # the hub's client has been on requests, whose errors are OSErrors, httpx and httpx2
    return isinstance(error, ConnectionError | TimeoutError) or any(
        kind.__name__ == "TransportError" for kind in type(error).__mro__
    )


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
