"""Files of the ``datasets`` library and of the Hugging Face hub: parquet and arrow."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_prep.folders.errors import InputError
from fairseq_transnormer.data.fingerprints import file_sha256


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
