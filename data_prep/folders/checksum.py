"""Files and downloads that are compared with a published SHA-256."""

import shutil
import urllib.request
from pathlib import Path
from typing import BinaryIO

from data_prep.folders.errors import InputError
from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.whole_files import part_of, write_whole

TIMEOUT_SECONDS = 30


def require_sha256(path: Path, expected: str) -> None:
    """Raises InputError unless the file is there and has this checksum."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    found = file_sha256(path)
    if found != expected:
        raise InputError(
            f"{path}: wrong checksum: sha256 is {found}, expected {expected}"
        )


def download(url: str, path: Path, sha256: str, instead: str) -> None:
    """Fetches ``url`` to ``path``, which exists only if the checksum is right.

    ``instead`` tells the user what to do where the network is out of reach.
    """

    def fetch(file: BinaryIO) -> None:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            shutil.copyfileobj(response, file)
        file.flush()
        require_sha256(Path(file.name), sha256)

    try:
        write_whole(path, fetch, part_of(path))
    except (OSError, ValueError) as error:  # URLError and timeouts are OSErrors
        raise InputError(f"{url}: cannot be downloaded ({error}); {instead}") from error
    except InputError as error:
        raise InputError(f"{url}: {error}; {instead}") from error
