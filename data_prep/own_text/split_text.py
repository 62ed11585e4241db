"""Divides your own text files among train, valid and test, as text.

A document is a file. They are divided whole, so that none stands in two splits; but
where valid or test would get too few documents, every document is divided by its
paragraphs: what stands between blank lines, or a line where there are none. Folders
stand for the files in them and below that have one of --suffixes, in UTF-8.

DIR gets train.txt, valid.txt and test.txt, with a blank line between what were no
neighbours, and manifest.json with counts and checksums.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_prep.folders.arguments import command_parser, destination_folder
from data_prep.folders.errors import InputError, run_command
from data_prep.folders.report import file_records
from data_prep.folders.staging import Staging
from data_prep.folders.text_files import TextFile
from data_prep.own_text.division import (
    Division,
    add_division,
    add_suffixes,
    check_fractions,
    divided_as_asked,
)
from data_prep.own_text.documents import described, find_files, left_out
from fairseq_transnormer.data import MANIFEST

TEXT_SUFFIXES = (".txt", ".md", ".rst")
# characters that are counted one by one; more say no more of a script
COUNTED = 20_000_000
# of the characters, those that are to become pieces of their own in a large script
COVERAGE = 0.9995


class Counts:
    """What passes, counted."""

    def __init__(self) -> None:
        self.lines = self.words = self.bytes = self.characters = 0
        self._found: Counter[str] = Counter()

    def of(self, lines: Iterator[str]) -> Iterator[str]:
        """The lines, counted as they pass."""
        for line in lines:
            self.lines += 1
            self.words += len(line.split())
            self.bytes += len(line.encode())
            if self.characters < COUNTED:
                self._found.update(line)
            self.characters += len(line)
            yield line

    def as_dict(self) -> dict[str, int]:
        """All counts; of the characters that were looked at, the different ones."""
        return {
            "lines": self.lines,
            "words": self.words,
            "characters": self.characters,
            "bytes": self.bytes,
            "different_characters": len(self._found),
            "frequent_characters": self._frequent(),
        }

    def _frequent(self) -> int:
        wanted = COVERAGE * self._found.total()
        for number, (_, count) in enumerate(self._found.most_common(), 1):
            wanted -= count
            if wanted <= 0:
                return number
        return 0


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("split_text", __doc__)
    add = parser.add_argument
    help_text = "files or folders to divide"
    add(
        "--input",
        type=Path,
        action="extend",
        nargs="+",
        required=True,
        metavar="PATH",
        help=help_text,
    )
    add(
        "--dest",
        type=destination_folder,
        required=True,
        metavar="DIR",
        help="folder to make; it appears only when it is complete",
    )
    add(
        "--overwrite",
        action="store_true",
        help="replace the text that an earlier run made in DIR",
    )
    add_suffixes(parser, TEXT_SUFFIXES)
    add_division(parser)
    options = parser.parse_args(arguments)
    check_fractions(parser, options.fractions)
    return run_command(parser.prog, lambda: _split(options))


def text_files(
    paths: Sequence[Path], suffixes: Sequence[str], dest: Path | None
) -> tuple[list[TextFile], str]:
    """The files to divide, and a line that names what is read and what is not.

    Raises:
        InputError: there is none, or one is no text.
    """
    files = find_files("--input", paths, suffixes, dest)
    for file in files:
        if file.has_nul:
            raise InputError(
                f"--input {file.path}: binary, with NUL bytes in it; allowed: text in "
                "UTF-8, other files under names without the suffixes "
                f"{' '.join(suffixes)}"
            )
    read = described(Counter(file.path.suffix.lower() for file in files))
    skipped = described(left_out(paths, suffixes)) or "nothing"
    return files, f"read {read}; left out: {skipped}"


def _split(options: argparse.Namespace) -> None:
    files, told = text_files(options.input, options.suffixes, options.dest)
    division = divided_as_asked(files, options)
    settings = {"command": "split_text", **division.settings}
    staging = Staging(options.dest, settings, MANIFEST, options.overwrite)
    if staging.is_complete():
        return
    print(told)
    division.tell()
    names = [f"{split.name}.txt" for split in division.splits]
    with staging:
        staging.expect(names)
        counts = counted(division, staging.folder)
        report = {
            "settings": settings,
            "divided_by": division.by,
            "reason": division.reason,
            "warnings": division.warnings(),
            "read": told,
            "splits": counts,
            "files": file_records(
                staging.folder, (staging.folder / name for name in names)
            ),
        }
        staging.write_report(report)
        staging.publish()
    for name, numbers in counts.items():
        text = ", ".join(f"{n:,} {unit}" for unit, n in numbers.items())
        print(f"{options.dest / name}.txt: {text}")


def counted(
    division: Division, folder: Path | None = None
) -> dict[str, dict[str, int]]:
    """Counts by split; the text is written where there is a folder."""
    counts = {}
    for split in division.splits:
        counter = Counts()
        lines = counter.of(_ended(split.lines()))
        if folder is None:
            for _ in lines:
                pass
        else:
            path = folder / f"{split.name}.txt"
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(lines)
        counts[split.name] = split.counts | counter.as_dict()
    return counts


def _ended(lines: Iterator[str]) -> Iterator[str]:
    return (line if line.endswith("\n") else f"{line}\n" for line in lines)
