"""SHA-256 of files, and downloads that are checked against a published one."""

import hashlib
import os
import shutil
import urllib.request
from pathlib import Path

from data_prep.folders.errors import InputError

TIMEOUT_SECONDS = 30
CHUNK_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def require_sha256(path: Path, expected: str) -> None:
    """Raises InputError unless the file is there and has this checksum."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    found = sha256_of(path)
    if found != expected:
        raise InputError(
            f"{path}: wrong checksum: sha256 is {found}, expected {expected}"
        )


def download(url: str, path: Path, sha256: str, instead: str) -> None:
    """Fetches ``url`` to ``path``, which exists only if the checksum is right.

    ``instead`` tells the user what to do where the network is out of reach.
    """
    part = path.with_name(path.name + ".part")
    try:
        with (
            urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response,
            open(part, "wb") as file,
        ):
            shutil.copyfileobj(response, file)
    except (OSError, ValueError) as error:  # URLError and timeouts are OSErrors
        part.unlink(missing_ok=True)
        raise InputError(f"{url}: cannot be downloaded ({error}); {instead}") from error
    try:
        require_sha256(part, sha256)
    except InputError as error:
        part.unlink()
        raise InputError(f"{url}: {error}; {instead}") from error
    os.replace(part, path)
