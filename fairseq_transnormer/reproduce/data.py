"""The data that runs train on: are they there, and are they the same as before."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data import REPORT, SPLITS
from ..data.fingerprints import files_fingerprint
from ..data.labelled_texts import SentenceData
from ..data.recall import mixed_folders, read_settings

if TYPE_CHECKING:  # which imports torch; a job asks for its data's fingerprint without
    from .schema import Preset

FILES = ["dict.txt", *(f"{s}.{kind}" for s in SPLITS for kind in ("bin", "idx"))]
# of a manifest of labelled sequences: what the numbers in the files stand for
MEANING = ("vocabulary", "classes", "sequences", "splits")
# what overrides name one of several data sets by
PROBLEM, ARENA = "classification", "lra"
PAIRS, MIXTURE = "task.pairs", "task.mixture"
OWN = "own"
# names of GLUE's problems in the reports of its data, and of their folders
GLUE = {"mnli": "MNLI", "qnli": "QNLI", "qqp": "QQP", "sst2": "SST-2", "mrpc": "MRPC"}
GLUE |= {"cola": "CoLA", "rte": "RTE", "stsb": "STS-B"}


@dataclass(frozen=True)
class Data:
    """A folder of data for a run."""

    folder: Path
    task: str = ""  # fairseq's: the kind of data; "" for none
    conditions: str = ""  # the entry of a preset's tasks that can make them
    part: str | int = ""  # a problem, pairs of a line, or "4,16" for a mixture


def data_of(
    folder: Path, task: str, conditions: str, overrides: dict[str, Any]
) -> Data:
    """The data of a run in the folder of a task's, by its overrides."""
    part: str | int = ""
    if task == "long_range_arena":
        folder /= overrides[ARENA]
    elif task == "associative_recall":
        part = overrides.get(MIXTURE) or overrides[PAIRS]
        folder = folder if MIXTURE in overrides else folder / str(part)
    elif task == "sentence_prediction":
        part = overrides[PROBLEM]
        named = folder / GLUE.get(part, part)
        # that of all problems, or the problem's own
        if named.is_dir() or not (part == OWN or (folder / REPORT).is_file()):
            folder = named
    return Data(folder, task, conditions, part)


def fingerprint(data: Data) -> str:
    """Changes with what a run reads of the folder; "" of no data.

    OSError or ValueError where they are not there, or of another problem.
    """
    folder, said, names = data.folder, None, FILES
    if data.task == "sentence_prediction":
        found, wanted = SentenceData.read(folder), GLUE.get(str(data.part))
        if wanted not in (None, found.task):
            raise ValueError(f"{folder}: its data must be {wanted}, got {found.task!r}")
        return found.fingerprint()
    if data.task == "long_range_arena":
        from ..data.labelled_sequences import read_manifest

        paths = [*sorted(folder.glob("*.bin")), *sorted(folder.glob("*.npy"))]
        names = [path.name for path in paths]
        said = {k: v for k, v in read_manifest(folder).items() if k in MEANING}
    elif data.task == "associative_recall" and isinstance(data.part, str):
        folders = mixed_folders(folder, data.part)
        names = [f"{number}/{name}" for number in folders for name in FILES]
        said = [read_settings(each) for each in folders.values()]
    elif data.task == "associative_recall":
        said = read_settings(folder, data.part)
    text = json.dumps(said, sort_keys=True)
    return files_fingerprint(folder, names, text) if data.task else ""


def require(
    preset: Preset, wanted: Iterable[Data], root: Path, prepare: bool, dry_run: bool
) -> set[Data]:
    """See to it that the data are there, by the preset's commands, run in ``root``.

    ``prepare`` is whether the user asked for it; some presets need not be asked. A dry
    run prints what is missing, and what would be run, and returns what is missing.
    """
    missing = _missing(wanted)
    places = {d: (root / preset.task(d.conditions).data).resolve() for d in missing}
    # not what a command names
    made = {data for data in missing if data.folder.is_relative_to(places[data])}
    asked = (prepare or preset.prepare_automatically) and made == {*missing}
    commands = _commands(preset, missing) if asked and missing else []
    if dry_run:
        for why in missing.values():
            print(f"data are missing: {why}")
        for command in commands:
            print("data would be prepared:", shlex.join(command))
        return {*missing}
    for command in commands:
        words = [sys.executable if word == "python" else word for word in command]
        print("preparing data:", shlex.join(words), flush=True)
        if subprocess.run(words, cwd=root).returncode:
            raise ValueError(f"preparing data failed: {shlex.join(words)}")
    for data, why in _missing(missing).items():
        can_make = data in made and _commands(preset, [data])
        how = "--prepare makes it, or " if can_make else ""
        raise ValueError(f"data {why}; {how}--data TASK=DIR names another folder")
    return set()


def _missing(wanted: Iterable[Data]) -> dict[Data, str]:
    """Those that a run cannot use, and why."""
    found = {}
    for data in sorted(wanted, key=lambda each: str(each.folder)):
        try:
            fingerprint(data)
        except (OSError, ValueError) as error:
            found[data] = str(error)
    return found


def _commands(preset: Preset, missing: Iterable[Data]) -> list[list[str]]:
    names = sorted({data.conditions for data in missing})
    tasks = [preset.task(name) for name in names]
    commands = [] if all(task.prepare_alone for task in tasks) else [*preset.prepare]
    return commands + [command for task in tasks for command in task.prepare]
