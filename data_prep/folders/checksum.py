"""Files and downloads that are compared with a published SHA-256."""

import os
import sys
from pathlib import Path

from data_prep.folders.errors import InputError
from fairseq_transnormer.data.fingerprints import file_sha256

TIMEOUT_SECONDS = 30
# of a download that failed or came out wrong; pooch waits 1, 2, 3 s before them
RETRIES = 3
CHUNK_BYTES = 1 << 16
# the package keeps what it found out about kernels under the same name
CACHE_VARIABLE = "FAIRSEQ_TRANSNORMER_CACHE"


def require_sha256(path: Path, expected: str) -> None:
    """Raises InputError unless the file is there and has this checksum."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    found = file_sha256(path)
    if found != expected:
        raise InputError(
            f"{path}: wrong checksum: sha256 is {found}, expected {expected}"
        )


def fetched(url: str, name: str, sha256: str, instead: str) -> Path:
    """The file at ``url``, in the cache of downloads: whole, and fetched once.

    Args:
        url: http or https.
        name: the file's; in the cache the checksum stands before it.
        sha256: what it must have; pooch fetches a damaged file again.
        instead: what to do where the network is out of reach, for the message.

    Raises:
        InputError: it cannot be fetched, or has another checksum.
    """
    import pooch

    in_terminal = sys.stderr.isatty()
    # elsewhere a failure is one line, and success none
    pooch.get_logger().setLevel("INFO" if in_terminal else "WARNING")
    own = f"{sha256[:16]}-{name}"
    downloads = pooch.create(
        path=_cache() / "downloads",
        base_url="",
        registry={own: f"sha256:{sha256}"},
        urls={own: url},
        retry_if_failed=RETRIES,
    )
    downloader = pooch.HTTPDownloader(
        progressbar=in_terminal, chunk_size=CHUNK_BYTES, timeout=TIMEOUT_SECONDS
    )
    try:
        return Path(downloads.fetch(own, downloader=downloader))
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        reason = " ".join(str(error).split())
        raise InputError(
            f"{url}: cannot be downloaded ({reason}); {instead}"
        ) from error


def _cache() -> Path:
    import pooch

    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else pooch.os_cache("fairseq_transnormer")
