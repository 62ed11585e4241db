"""A folder saved over an earlier one: the old files or the new ones at every moment.

What is written goes to a folder inside, then beside the earlier files as
``NAME.<16 digits>.new``, where the digits are of the SHA-256 of the new config.json.
When that takes its name the new files belong to the folder: ``settle`` gives them
theirs, here or, after a kill, in the program that reads the folder next.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..data.fingerprints import file_sha256
from ..data.whole_files import write_text
from .manifest import FORMAT, MANIFEST, Manifest, belongs, is_weights
from .safe_loading import CheckpointError, error_line

SAVING = ".saving"
# a file on its way, with digits of the config.json that it belongs to
NEW = re.compile(r".+\.[0-9a-f]{16}\.new")
Written = TypeVar("Written")


def save_whole(folder: Path, write: Callable[[Path], Written]) -> Written:
    """Take what ``write`` puts into the folder that it gets into ``folder``.

    Weights, or a dictionary with its units, take the place of those of before.

    Raises:
        CheckpointError: it cannot be written; the folder is as it was.
    """
    from safetensors import SafetensorError

    # transformers names a repository after the folder
    making = folder / SAVING / folder.absolute().name
    try:
        shutil.rmtree(folder / SAVING, ignore_errors=True)
        making.mkdir(parents=True)
        written = write(making)
        _take(making, folder)
    # on a full disk SafetensorError is no OSError
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder}: cannot be saved ({error_line(error)})"
        ) from error
    finally:
        shutil.rmtree(folder / SAVING, ignore_errors=True)
    return written


def settle(folder: Path, files: Collection[str]) -> None:
    """Give the files of a save their names, if it ended before it did.

    files: names of those that belong to the folder's config.json.

    Raises:
        CheckpointError: the folder cannot be written to.
    """
    digits = file_sha256(folder / MANIFEST)[:16]
    new = sorted(folder.glob(f"*.{digits}.new"))
    try:
        if new:
            for path in folder.iterdir():
                if belongs(path.name) and path.name not in files:
                    path.unlink()
        for path in new:
            path.replace(path.with_name(path.name.removesuffix(f".{digits}.new")))
    except OSError as error:
        raise CheckpointError(
            f"{folder}: a save did not end, nor can be ({error})"
        ) from error


def _take(making: Path, folder: Path) -> None:
    # another program's config.json may stand there
    with suppress(CheckpointError):
        settle(folder, Manifest.read(folder).files)
    for path in folder.glob("*.new"):
        if NEW.fullmatch(path.name):
            path.unlink()
    names = {path.name for path in making.iterdir()}
    ours = set(filter(belongs, names))
    path = (making if MANIFEST in names else folder) / MANIFEST
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not ours or FORMAT not in content:
        for name in names:
            os.replace(making / name, folder / name)
        return
    kinds = set(map(is_weights, ours))
    there = {each.name for each in folder.iterdir() if belongs(each.name)}
    places = {name: folder for name in there if is_weights(name) not in kinds}
    places |= dict.fromkeys(ours, making)
    files = {name: file_sha256(places[name] / name) for name in sorted(places)}
    content[FORMAT]["files"] = files
    write_text(making / MANIFEST, json.dumps(content, indent=2, sort_keys=True) + "\n")
    digits = file_sha256(making / MANIFEST)[:16]
    for name in names - {MANIFEST}:
        with (making / name).open("rb") as file:
            os.fsync(file.fileno())
        os.replace(making / name, folder / f"{name}.{digits}.new")
    os.replace(making / MANIFEST, folder / MANIFEST)
    settle(folder, files)
