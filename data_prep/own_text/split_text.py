"""Divides your own text files among train, valid and test, as text.

A document is a file. They are divided whole, so that none stands in two splits; but
where valid or test would get too few documents, every document is divided by its
paragraphs: what stands between blank lines, or a line where there are none. Folders
stand for the files in them and below that have one of --suffixes, in UTF-8.

DIR gets train.txt, valid.txt and test.txt, with a blank line between what were no
neighbours, and manifest.json with counts and checksums.
"""

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_prep.folders.command import add_destination, command
from data_prep.folders.staging import Record, Work, publish
from data_prep.folders.text_files import TextFile
from data_prep.own_text.division import (
    Division,
    add_division,
    add_suffixes,
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


def text_files(
    paths: Sequence[Path],
    suffixes: Sequence[str],
    dest: Path | None,
    option: str = "--input",
) -> tuple[list[TextFile], str]:
    """The files to divide, and a line that names what is read and what is not.

    Raises:
        ValueError: there is none, or one is no text.
    """
    files = find_files(option, paths, suffixes, dest)
    for file in files:
        if file.has_nul:
            raise ValueError(
                f"{option} {file.path}: binary, with NUL bytes in it; allowed: text in "
                "UTF-8, other files under names without the suffixes "
                f"{' '.join(suffixes)}"
            )
    read = described(Counter(file.path.suffix.lower() for file in files))
    skipped = described(left_out(paths, suffixes)) or "nothing"
    return files, f"read {read}; left out: {skipped}"


def counted(division: Division, work: Work | None = None) -> dict[str, dict[str, int]]:
    """Counts by split; the text is written where there is a folder to fill."""
    counts = {}
    for split in division.splits:
        counter = Counts()
        lines = counter.of(_ended(split.lines()))
        path = work.file(f"{split.name}.txt") if work else os.devnull
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
        counts[split.name] = split.counts | counter.as_dict()
    return counts


def _ended(lines: Iterator[str]) -> Iterator[str]:
    return (line if line.endswith("\n") else f"{line}\n" for line in lines)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        type=Path,
        action="extend",
        nargs="+",
        required=True,
        metavar="PATH",
        help="files or folders to divide",
    )
    add_destination(parser)
    add_suffixes(parser, TEXT_SUFFIXES)
    add_division(parser)


def _split(options: argparse.Namespace) -> None:
    files, read = text_files(options.input, options.suffixes, options.dest)
    division = divided_as_asked(files, options)

    def make(work: Work) -> Record:
        print(read)
        division.show()
        return {
            "divided_by": division.by,
            "reason": division.reason,
            "warnings": division.warnings(),
            "read": read,
            "splits": counted(division, work),
        }

    settings = {"command": "split_text", **division.settings}
    publish(options.dest, settings, MANIFEST, options.overwrite, make)


main = command("split_text", __doc__, _add_options, _split)
