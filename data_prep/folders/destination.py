"""The folder that a preparation makes, and which of the files in a folder it made.

Only a file that a report lists is ever removed: whatever else lies in a folder is
somebody's, and its name is reported instead.
"""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from data_prep.folders.errors import InputError

SHOWN_NAMES = 3
SHOWN_DIFFERENCES = 3
SHA256_DIGITS = 64

Record = dict[str, Any]


def resolved(path: Path) -> Path:
    """``path`` without links and ``..``: the one name that is used for the folder.

    A link is followed, so that data go where it points and the link stays.
    Raises InputError where it leads nowhere, or to the root.
    """
    try:
        found = Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL
        raise InputError(f"--dest {path}: cannot be followed: {error}") from None
    if not found.name:
        raise InputError(f"--dest {path}: allowed is a folder below the root")
    return found


def read_json(path: Path) -> Record:
    """The object in ``path``; empty where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # missing or not ours
        return {}
    return content if isinstance(content, dict) else {}


def listed_files(report: Any, path: Path) -> dict[str, Record]:
    """What the report read from ``path`` says of each file: bytes and sha256.

    Raises InputError where ``files`` is malformed, or has a name that leads elsewhere.
    """
    files = report.get("files") if isinstance(report, dict) else None
    if not isinstance(files, dict):
        raise InputError(
            f"{path}: files: {_short(files)}; allowed is an object, with bytes and "
            "sha256 by name"
        )
    for name, record in files.items():
        if _leads_elsewhere(name):
            raise InputError(
                f"{path}: files: {name!r}; allowed are names of files in the folder"
            )
        if not isinstance(record, dict):
            raise InputError(
                f"{path}: files: {name}: {_short(record)}; allowed is an object with "
                "bytes and sha256"
            )
        size, digest = record.get("bytes"), record.get("sha256")
        if type(size) is not int or size < 0:
            raise InputError(
                f"{path}: files: {name}: bytes: {_short(size)}; allowed are integers "
                "from 0"
            )
        if not (isinstance(digest, str) and len(digest) == SHA256_DIGITS):
            raise InputError(
                f"{path}: files: {name}: sha256: {_short(digest)}; allowed are "
                f"{SHA256_DIGITS} hexadecimal digits"
            )
    return files


def _leads_elsewhere(name: str) -> bool:
    path = PurePosixPath(name)
    return (
        path.is_absolute()
        or ".." in path.parts
        or "\0" in name
        or path.as_posix() != name
        or name == "."
    )


def _short(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."


def foreign_names(folder: Path, made: set[str]) -> list[str]:
    """What ``folder`` has beside the regular files ``made`` and their folders."""
    folders = _folders_of(made)
    found = []
    for path, subfolders, files in _walk(folder):
        for name in [*subfolders, *files]:
            own = _name(folder, path, name)
            mode = os.lstat(os.path.join(path, name)).st_mode
            if stat.S_ISDIR(mode) and own in folders:
                continue
            if not (stat.S_ISREG(mode) and own in made):
                found.append(own)
                if name in subfolders:
                    subfolders.remove(name)
    return sorted(found)


def remove_made(folder: Path, made: set[str]) -> None:
    """Removes the regular files ``made`` and their folders once these are empty."""
    folders = _folders_of(made)
    for path, subfolders, files in _walk(folder, topdown=False):
        for name in files:
            file = os.path.join(path, name)
            own = _name(folder, path, name) in made
            if own and stat.S_ISREG(os.lstat(file).st_mode):
                os.unlink(file)
        for name in subfolders:
            if _name(folder, path, name) in folders:
                remove_if_empty(Path(path, name))


def remove_if_empty(folder: Path) -> None:
    """Removes a folder; leaves it where something is in it."""
    if not folder.is_symlink() and not any(os.scandir(folder)):
        os.rmdir(folder)


def shown_names(names: list[str]) -> str:
    """The first of ``names``, and how many more there are."""
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def folder_number(path: Path) -> int | None:
    """The inode of a folder, by which it is known after a rename; else None."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino if stat.S_ISDIR(found.st_mode) else None


def differences(recorded: Record, settings: Record) -> list[str]:
    """The settings that differ, with both values; the first few of them."""
    there, now = _flat("", recorded), _flat("", json.loads(json.dumps(settings)))
    names = [name for name in {**there, **now} if there.get(name) != now.get(name)]
    shown = [
        f"{name}: {there.get(name)!r} there, {now.get(name)!r} now"
        for name in names[:SHOWN_DIFFERENCES]
    ]
    more = len(names) - len(shown)
    return shown + ([f"{more} more"] if more else [])


def _flat(name: str, value: Any) -> Record:
    if isinstance(value, list):
        value = {str(position): item for position, item in enumerate(value)}
    if not isinstance(value, dict):
        return {name: value}
    flat: Record = {}
    for key, item in value.items():
        flat |= _flat(f"{name}.{key}" if name else key, item)
    return flat


def _folders_of(names: set[str]) -> set[str]:
    return {
        parent.as_posix()
        for name in names
        for parent in PurePosixPath(name).parents
        if parent.name
    }


def _name(folder: Path, path: str, name: str) -> str:
    return Path(path, name).relative_to(folder).as_posix()


def _walk(folder: Path, topdown: bool = True) -> Iterator:
    def fail(error: OSError) -> None:
        # what cannot be looked into may hold anything
        raise error

    return os.walk(folder, topdown=topdown, onerror=fail)
