"""Files that are the old or the new ones at every moment, never half of one.

The content goes to a part, a file next to the target, and is on the disk before that
takes the target's name. A part is removed where writing fails; a writer that is killed
leaves it. It is ``TARGET.<32 hexadecimal digits>.tmp``, so that two writers of one
target do not meet.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def write_whole(target: str | Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file, whose folder is there; what ``write`` raises leaves the one before.

    ``write`` gets the file to write to.
    """
    part = f"{os.fspath(target)}.{uuid.uuid4().hex}.tmp"
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    folder = os.open(os.path.dirname(part) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def make_folder(path: Path, name: str) -> None:
    """Make a folder that files are to be written to, before any work is lost.

    Raises:
        ValueError: it cannot be made, or not be written to; the message has the name.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise ValueError(
            f"{name} {path}: cannot be written ({error.strerror})"
        ) from error


def make_folder_of(file: Path, name: str) -> None:
    """Make the folder of a file that is to be written; see ``make_folder``.

    A folder, a link, a pipe or a device is refused: the file would take its place.
    """
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise ValueError(f"{name} {file}: not a file; it must be a file to write")
    make_folder(file.parent, f"{name} {file}: its folder")


def copy_whole(source: str | Path, target: str | Path) -> None:
    """Copy a file, as ``write_whole`` writes one."""
    with open(source, "rb") as original:
        write_whole(target, lambda file: shutil.copyfileobj(original, file, 1 << 24))


def write_text(target: str | Path, text: str) -> None:
    """Write text in UTF-8, with its own ends of lines, as ``write_whole`` does."""
    content = text.encode("utf-8")
    write_whole(target, lambda file: file.write(content))


def write_json(target: str | Path, content: Any, indent: int | None = 1) -> None:
    """Write JSON, as ``write_whole`` does; on one line where ``indent`` is None.

    NaN and infinity are null: see ``json_text``.
    """
    write_text(target, json_text(content, indent=indent) + "\n")


def json_text(content: Any, **options: Any) -> str:
    """JSON of plain data, null for what JSON has not: NaN and infinity. Python writes
    them all the same, and other languages refuse the whole text."""
    plain = json.loads(json.dumps(content), parse_constant=lambda name: None)
    return json.dumps(plain, **options)
