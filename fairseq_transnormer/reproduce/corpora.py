"""The binarised text that runs train on: is it there, and is it the same as before."""

import hashlib
import subprocess
import sys
from pathlib import Path

from .errors import ReproduceError
from .presets import Preset

SPLITS = ("train", "valid", "test")
FILES = ["dict.txt", *(f"{s}.{kind}" for s in SPLITS for kind in ("bin", "idx"))]


def missing_files(folder: Path) -> list[str]:
    """Names of the files that a run needs and ``folder`` does not have."""
    return [name for name in FILES if not (folder / name).is_file()]


def fingerprint(folder: Path) -> str:
    """Changes with the text: of the dictionary, the held-out splits and all sizes."""
    digest = hashlib.sha256()
    for name in FILES:
        path = folder / name
        digest.update(f"{name} {path.stat().st_size} ".encode())
        if not name.startswith("train"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def require(preset: Preset, folders: list[Path], root: Path, prepare: bool) -> None:
    """See to it that the data are there.

    Args:
        preset: whose commands make them.
        folders: that are needed.
        root: where the commands run.
        prepare: whether the user asked for it; some presets need not be asked.

    Raises:
        ReproduceError: data are missing, or a command failed.
    """
    absent = [folder for folder in folders if missing_files(folder)]
    if not absent:
        return
    if prepare or preset.prepare_automatically:
        for command in _commands(preset, absent, root):
            command = [sys.executable if word == "python" else word for word in command]
            print("preparing data:", " ".join(command), flush=True)
            if subprocess.run(command, cwd=root).returncode:
                raise ReproduceError(f"preparing data failed: {' '.join(command)}")
    for folder in folders:
        missing = missing_files(folder)
        if missing:
            how = "; --prepare makes it, or --data TASK=DIR names another folder"
            raise ReproduceError(f"data {folder}: no {', '.join(missing)}{how}")


def _commands(preset: Preset, absent: list[Path], root: Path) -> list[list[str]]:
    """The commands that make the folders, each once."""
    own = {(root / each.data).resolve(): each.prepare for each in preset.tasks.values()}
    commands: list[list[str]] = []
    for folder in absent:
        for command in own.get(folder) or preset.prepare:
            if command not in commands:
                commands.append(command)
    return commands
