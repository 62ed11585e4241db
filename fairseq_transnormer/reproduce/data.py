"""The data that runs train on: are they there, and are they the same as before."""

from __future__ import annotations

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
from ..data.recall import RecallLines, mixed_folders, read_settings
from .errors import ReproduceError

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
    """A folder of data for a run.

    Attributes:
        folder: where they are.
        task: fairseq's, which says what kind of data they are; "" for none.
        conditions: the entry of a preset's tasks that has the commands to make them.
        part: which of several: a problem, pairs of a line, or "4,16" for a mixture.
    """

    folder: Path
    task: str = ""
    conditions: str = ""
    part: str | int = ""


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


def fault(data: Data) -> str:
    """What is wrong with the data; "" if a run can use them."""
    folder = data.folder
    try:
        if data.task == "long_range_arena":
            from ..data.labelled_sequences import LabelledSequences

            for split in SPLITS:
                LabelledSequences(folder, split)
        elif data.task == "sentence_prediction":
            found, wanted = SentenceData.read(folder).task, GLUE.get(str(data.part))
            if wanted not in (None, found):
                raise ValueError(f"{folder}: of {found!r}; allowed: {wanted!r}")
        elif data.task == "associative_recall":
            for pairs, each in _recall_folders(data).items():
                _require_files(each)
                for split in SPLITS:
                    RecallLines(each, split, pairs=pairs)
        elif data.task:
            _require_files(folder)
    except (OSError, ValueError) as error:
        return f"data {error}"
    return ""


def _require_files(folder: Path) -> None:
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder}: no {', '.join(missing)}")


def _recall_folders(data: Data) -> dict[int, Path]:
    if isinstance(data.part, str):
        return mixed_folders(data.folder, data.part)
    return {data.part: data.folder}


def fingerprint(data: Data) -> str:
    """Changes with what a run reads of the folder; "" of no data.

    Raises:
        OSError, ValueError: they are not there, or damaged.
    """
    folder = data.folder
    if data.task == "long_range_arena":
        from ..data.labelled_sequences import read_manifest

        names = sorted(path.name for path in folder.glob("*.bin"))
        names += sorted(path.name for path in folder.glob("*.npy"))
        said = {k: v for k, v in read_manifest(folder).items() if k in MEANING}
        return files_fingerprint(folder, names, said)
    if data.task == "sentence_prediction":
        return SentenceData.read(folder).fingerprint()
    if data.task == "associative_recall" and not isinstance(data.part, str):
        return files_fingerprint(folder, FILES, read_settings(folder))
    if data.task == "associative_recall":
        folders = _recall_folders(data)
        names = [f"{number}/{name}" for number in folders for name in FILES]
        settings = [read_settings(each) for each in folders.values()]
        return files_fingerprint(folder, names, settings)
    return files_fingerprint(folder, FILES) if data.task else ""


def require(
    preset: Preset, wanted: Iterable[Data], root: Path, prepare: bool, dry_run: bool
) -> set[Data]:
    """See to it that the data are there.

    Args:
        preset: whose commands make them.
        wanted: the data that are needed.
        root: where the commands run.
        prepare: whether the user asked for it; some presets need not be asked.
        dry_run: whether to print what would be run, and what is missing, alone.

    Returns:
        those that are not there, of a dry run.

    Raises:
        ReproduceError: data are missing, or a command failed.
    """
    missing = _missing(wanted)
    if not missing:
        return set()
    asked = prepare or preset.prepare_automatically
    strange = [
        data
        for data in missing
        if not data.folder.is_relative_to(
            (root / preset.task(data.conditions).data).resolve()
        )
    ]
    commands = _commands(preset, missing) if asked and not strange else []
    if dry_run:
        for why in missing.values():
            print(f"data are missing: {why}")
        for command in commands:
            print("data would be prepared:", shlex.join(command))
        return set(missing)
    for command in commands:
        words = [sys.executable if word == "python" else word for word in command]
        print("preparing data:", shlex.join(words), flush=True)
        if subprocess.run(words, cwd=root).returncode:
            raise ReproduceError(f"preparing data failed: {shlex.join(words)}")
    for data, why in _missing(wanted).items():
        can_make = data not in strange and _commands(preset, [data])
        how = "--prepare makes it, or " if can_make else ""
        raise ReproduceError(f"{why}; {how}--data TASK=DIR names another folder")
    return set()


def _missing(wanted: Iterable[Data]) -> dict[Data, str]:
    ordered = sorted(wanted, key=lambda data: str(data.folder))
    return {data: why for data in ordered if (why := fault(data))}


def _commands(preset: Preset, missing: Iterable[Data]) -> list[list[str]]:
    names = sorted({data.conditions for data in missing})
    tasks = [preset.task(name) for name in names]
    alone = all(task.prepare_alone for task in tasks)
    commands = [] if alone else list(preset.prepare)
    return commands + [command for task in tasks for command in task.prepare]
