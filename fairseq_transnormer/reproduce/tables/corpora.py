"""The data that runs train on: are they there, and are they the same as before."""

import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...data import SPLITS
from ...data.fingerprints import files_fingerprint
from ...data.labelled_sequences import LabelledSequences, read_manifest
from ...data.labelled_texts import SentenceData
from ..errors import ReproduceError
from .presets import Preset

# of a manifest: what the numbers in the files stand for
MEANING = ("vocabulary", "classes", "sequences", "splits")
FILES = ["dict.txt", *(f"{s}.{kind}" for s in SPLITS for kind in ("bin", "idx"))]

ANOTHER = "--data TASK=DIR names another folder"
HOW = f"; --prepare makes it, or {ANOTHER}"


@dataclass(frozen=True)
class Text:
    """Binarised text for language models.

    Attributes:
        folder: where it is.
        task: fairseq's, which the preset has commands for.
    """

    folder: Path
    task: str

    def fault(self) -> str | None:
        """What is wrong with the folder; None if a run can use it."""
        missing = [name for name in FILES if not (self.folder / name).is_file()]
        return f"data {self.folder}: no {', '.join(missing)}" if missing else None

    def fingerprint(self) -> str:
        """Changes with the dictionary and the text of any split."""
        return files_fingerprint(self.folder, FILES)


@dataclass(frozen=True)
class LabelledText:
    """Labelled texts for ``sentence_prediction``.

    Attributes:
        folder: where they are.
        task: fairseq's, which the preset has commands for.
        problem: the name that the folder's report must have; None takes any.
    """

    folder: Path
    task: str
    problem: str | None = None

    def fault(self) -> str | None:
        """What is wrong with the folder; None if a run can use it."""
        try:
            found = SentenceData.read(self.folder).task
        except ValueError as error:
            return f"data {error}"
        if self.problem not in (None, found):
            return f"data {self.folder}: of {found!r}, allowed: {self.problem!r}"
        return None

    def fingerprint(self) -> str:
        """Changes with what is in the folder."""
        return SentenceData.read(self.folder).fingerprint()


@dataclass(frozen=True)
class LabelledTokens:
    """Labelled sequences for ``long_range_arena``."""

    folder: Path
    task: str

    def fault(self) -> str | None:
        """What is wrong with the folder; None if a run can use it."""
        try:
            for split in SPLITS:
                LabelledSequences(self.folder, split)
        except ValueError as error:
            return f"data {error}"
        return None

    def fingerprint(self) -> str:
        """Changes with what is in the folder, whatever its manifest says."""
        names = sorted(path.name for path in self.folder.glob("*.bin"))
        names += sorted(path.name for path in self.folder.glob("*.npy"))
        said = {k: v for k, v in read_manifest(self.folder).items() if k in MEANING}
        return files_fingerprint(self.folder, names, said)


@dataclass(frozen=True)
class NoData:
    """Of what needs none; ``folder`` is for the record."""

    folder: Path
    task: str = ""

    def fault(self) -> None:
        """Nothing can be wrong."""

    def fingerprint(self) -> str:
        """Always the same."""
        return ""


Corpus = Text | LabelledText | LabelledTokens | NoData


def require(
    preset: Preset, corpora: Iterable[Corpus], root: Path, prepare: bool
) -> None:
    """See to it that the data are there.

    Args:
        preset: whose commands make them.
        corpora: that are needed.
        root: where the commands run.
        prepare: whether the user asked for it; some presets need not be asked.

    Raises:
        ReproduceError: data are missing, or a command failed.
    """
    for command in _commands(preset, _missing(corpora), root, prepare):
        command = [sys.executable if word == "python" else word for word in command]
        print("preparing data:", " ".join(command), flush=True)
        if subprocess.run(command, cwd=root).returncode:
            raise ReproduceError(f"preparing data failed: {' '.join(command)}")
    _refuse(preset, _missing(corpora))


def foretell(
    preset: Preset, corpora: Iterable[Corpus], root: Path, prepare: bool
) -> dict[Corpus, str]:
    """Print what ``require`` would run, or refuse, and run nothing.

    Returns:
        the data that are not there yet, each with what is wrong.

    Raises:
        ReproduceError: data are to be prepared, and no command would make them.
    """
    missing = _missing(corpora)
    if not (prepare or preset.prepare_automatically):
        for corpus, fault in missing.items():
            print(f"data are missing: {fault}{_way_out(preset, corpus)}")
        return missing
    for command in _commands(preset, missing, root, prepare):
        print("data would be prepared:", shlex.join(command))
    return missing


def _missing(corpora: Iterable[Corpus]) -> dict[Corpus, str]:
    ordered = sorted(corpora, key=lambda corpus: str(corpus.folder))
    faults = {corpus: corpus.fault() for corpus in ordered}
    return {corpus: fault for corpus, fault in faults.items() if fault}


def _refuse(preset: Preset, missing: dict[Corpus, str]) -> None:
    for corpus, fault in missing.items():
        raise ReproduceError(fault + _way_out(preset, corpus))


def _way_out(preset: Preset, corpus: Corpus) -> str:
    """How the data could be got, for messages."""
    task = preset.task(corpus.task)
    made = task.prepare or (preset.prepare and not task.prepare_alone)
    return HOW if made else f"; {ANOTHER}"


def _commands(
    preset: Preset, missing: dict[Corpus, str], root: Path, prepare: bool
) -> list[list[str]]:
    """What makes the data that are missing.

    Raises:
        ReproduceError: nobody asks for that, or the data are not the preset's.
    """
    asked = prepare or preset.prepare_automatically
    _refuse(
        preset,
        {
            corpus: fault
            for corpus, fault in missing.items()
            if not asked or not _is_of(preset, corpus, root)
        },
    )
    tasks = [preset.task(name) for name in sorted({each.task for each in missing})]
    alone = all(task.prepare_alone for task in tasks)
    commands = [] if alone else list(preset.prepare)
    for task in tasks:
        commands += task.prepare
    if missing and not commands:
        _refuse(preset, missing)
    return commands


def _is_of(preset: Preset, corpus: Corpus, root: Path) -> bool:
    """Whether the preset's commands make it: it is not in a folder of the user's."""
    own = (root / preset.task(corpus.task).data).resolve()
    return corpus.folder.resolve().is_relative_to(own)
