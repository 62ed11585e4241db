"""What files are and were made with: their SHA-256, and versions of packages.

Fingerprints are remembered within a process for as long as the file is untouched.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import re
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# of the files that training reads: binary data, and numbers to predict as text
DATA_SUFFIXES = {".bin", ".idx", ".npy", ".label"}


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, 64 hexadecimal digits, read anew at every call."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def file_fingerprint(path: Path) -> str:
    """SHA-256 of a file, remembered."""
    return remembered(path, file_sha256)


def files_fingerprint(folder: Path, names: Iterable[str], said: str) -> str:
    """16 hexadecimal digits of files by name, and of what is said of them.

    Args:
        folder: where they are; it does not count.
        names: of the files.
        said: text.
    """
    digest = hashlib.sha256(said.encode())
    for name in names:
        digest.update(f"{name} {file_fingerprint(folder / name)}\n".encode())
    return digest.hexdigest()[:16]


def split_fingerprint(folders: Iterable[Path], split: str) -> str | None:
    """SHA-256 of a split of prepared data, wherever it lies; None if there is none.

    Of the names and contents of its files, those in the folders of labelled texts'
    columns among them.

    Args:
        folders: the shards, in their order.
        split: such as "train"; its numbered parts count, "train_extra" does not.
    """
    digest, found = hashlib.sha256(), False
    part = re.compile(rf"{re.escape(Path(split).name)}[0-9]*\.")
    for folder in folders:
        columns = sorted(folder.glob(f"*/{split}*"))
        for path in [*sorted(folder.glob(f"{split}*")), *columns]:
            is_data = part.match(path.name) and path.suffix in DATA_SUFFIXES
            if is_data and path.is_file():
                name = path.relative_to(folder).as_posix()
                digest.update(f"{name} {file_fingerprint(path)}\n".encode())
                found = True
        digest.update(b"\n")
    return digest.hexdigest() if found else None


def mark_of(path: Path) -> tuple[int, ...]:
    """Facts of a file of which no writer keeps all."""
    at = path.stat()
    return at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns


def remembered(path: Path, compute: Callable[[Path], str]) -> str:
    """``compute(path)``, or what it was if the file is as it was then."""
    # taken before the file is read: one that is written meanwhile is read again
    return _computed(compute, path.absolute(), mark_of(path))


@functools.cache
def _computed(compute: Callable[[Path], str], path: Path, mark: tuple) -> str:
    return compute(path)


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of those of the packages that are installed, by name."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
