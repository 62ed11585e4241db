"""Save a folder over an earlier one, so that it always has the old or the new files.

Files are written to a folder inside, then moved next to the earlier files as
``NAME.<16 digits>.new``. The digits are of the SHA-256 of the new config.json. Renaming
config.json makes the new files valid. Then ``settle`` renames them, here or, after a
kill, in the next program that reads the folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..data.fingerprints import file_sha256
from ..data.whole_files import write_text
from .manifest import FORMAT, MANIFEST, Manifest, belongs, is_weights
from .safe_loading import CheckpointError, error_line

SAVING = ".fairseq_transnormer.saving"
# a file to be renamed, with digits of its config.json
NEW = re.compile(r"(.+)\.[0-9a-f]{16}\.new")
# further files that transformers writes, see ``belongs``
OTHERS = ("tokenizer_config.json", "generation_config.json", "special_tokens_map.json")
Written = TypeVar("Written")


def save_whole(folder: Path, write: Callable[[Path], Written]) -> Written:
    """Let ``write`` fill a temporary folder, and move its files into ``folder``.

    New weights, and a new dictionary with its subword files, replace the earlier ones.

    Raises:
        CheckpointError: the files cannot be written; the folder is unchanged.
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


def settle(folder: Path) -> Manifest:
    """Rename the files of a save that was interrupted; the manifest of the folder.

    Raises:
        CheckpointError: the folder cannot be written to; see ``Manifest.read``.
    """
    manifest, sha256 = Manifest.read(folder)
    digits = sha256[:16]
    new = sorted(filter(is_new, folder.glob(f"*.{digits}.new")))
    try:
        for name in manifest.replaced if new else ():
            if belongs(name) and name not in manifest.files:
                (folder / name).unlink(missing_ok=True)
        for path in new:
            # another process may complete the save, too
            with suppress(FileNotFoundError):
                path.replace(path.with_name(path.name.removesuffix(f".{digits}.new")))
    except OSError as error:
        raise CheckpointError(
            f"{folder}: a save was interrupted and cannot be completed ({error})"
        ) from error
    return manifest


def is_new(path: Path) -> bool:
    """Whether this is a file of an interrupted save."""
    found = NEW.fullmatch(path.name)
    return found is not None and (belongs(found[1]) or found[1] in OTHERS)


def _take(making: Path, folder: Path) -> None:
    earlier: list[str] = []
    # config.json may be of another program
    with suppress(CheckpointError):
        earlier = [*settle(folder).files]
    for path in filter(is_new, folder.glob("*.new")):
        path.unlink()
    names = {path.name for path in making.iterdir()}
    ours = set(filter(belongs, names))
    path = (making if MANIFEST in names else folder) / MANIFEST
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not (ours or MANIFEST in names) or FORMAT not in content:
        for name in names:
            os.replace(making / name, folder / name)
        return
    kinds = set(map(is_weights, ours))
    # a tokenizer may have been saved before its model
    there = {each.name for each in folder.iterdir() if belongs(each.name)}
    there = there.intersection(earlier) if earlier else there
    places = {name: folder for name in there if is_weights(name) not in kinds}
    places |= dict.fromkeys(ours, making)
    files = {name: file_sha256(places[name] / name) for name in sorted(places)}
    replaced = [name for name in earlier if name not in files]
    content[FORMAT] |= {"files": files, "replaced": replaced}
    write_text(making / MANIFEST, json.dumps(content, indent=2, sort_keys=True) + "\n")
    digits = file_sha256(making / MANIFEST)[:16]
    for name in names - {MANIFEST}:
        with (making / name).open("rb") as file:
            os.fsync(file.fileno())
        os.replace(making / name, folder / f"{name}.{digits}.new")
    os.replace(making / MANIFEST, folder / MANIFEST)
    settle(folder)
