"""Files and downloads that are compared with a published SHA-256."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairseq_transnormer.data.fingerprints import file_sha256

TIMEOUT_SECONDS = 30
# of a download that failed or came out wrong; pooch waits 1, 2, 3 s before them
RETRIES = 3
# the package keeps what it found out about kernels under the same name
CACHE_VARIABLE = "FAIRSEQ_TRANSNORMER_CACHE"


def require_sha256(path: Path, expected: str) -> None:
    """Raise ValueError unless the file has this checksum."""
    found = file_sha256(path)
    if found != expected:
        raise ValueError(
            f"{path}: wrong checksum: sha256 is {found}, expected {expected}"
        )


def fetched(url: str, name: str, sha256: str, instead: str) -> Path:
    """The file at ``url``, in the cache of downloads: whole, and fetched once.

    Args:
        name: the file's; in the cache the checksum stands before it.
        sha256: what it must have; pooch fetches a damaged file again.
        instead: what to do where the network is out of reach, for the message.

    Raises:
        ValueError: it cannot be fetched, or has another checksum.
    """
    import pooch

    in_terminal = sys.stderr.isatty()
    # elsewhere a failure is one line, and success none
    pooch.get_logger().setLevel("INFO" if in_terminal else "WARNING")
    own = f"{sha256[:16]}-{name}"
    cache = os.environ.get(CACHE_VARIABLE) or pooch.os_cache("fairseq_transnormer")
    downloads = pooch.create(
        path=Path(cache) / "downloads",
        base_url="",
        registry={own: f"sha256:{sha256}"},
        urls={own: url},
        retry_if_failed=RETRIES,
    )
    downloader = pooch.HTTPDownloader(progressbar=in_terminal, timeout=TIMEOUT_SECONDS)
    try:
        return Path(downloads.fetch(own, downloader=downloader))
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        raise ValueError(
            f"{url}: cannot be downloaded ({one_line(error)}); {instead}"
        ) from error


def one_line(error: Exception) -> str:
    """The error's type and the beginning of its text."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


@contextmanager
def reading(where: object) -> Iterator[None]:
    """Names the place of what a damaged file raises, of any kind and in any lines."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{where}: cannot be read: {one_line(error)}") from error
