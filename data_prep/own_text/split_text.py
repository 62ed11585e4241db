"""``data_prep split_text``: text divided among train, valid and test, as text."""

from __future__ import annotations

import os
import sys
from collections import Counter
from itertools import chain

from fairseq_transnormer.data import MANIFEST

from ..folders.options import Paths, Place
from ..folders.staging import Record, Work, publish
from ..folders.text_files import check_unchanged
from .division import Division, Wanted, divide
from .documents import find_files

SUFFIXES = (".txt", ".md", ".rst")
# characters that are counted one by one; more say no more of a script
COUNTED = 20_000_000
# of the characters, those that are to become pieces of their own in a large script
COVERAGE = 0.9995


def split_text(
    place: Place, division: Wanted, input: Paths, suffixes: tuple[str, ...] = SUFFIXES
) -> None:
    """Divide your own text files among train, valid and test, as text.

    A document is a file. Each goes to one split. If valid or test would get too few
    documents, every document is divided by its paragraphs. A paragraph is the text
    between blank lines; in a document without blank lines it is a line.

    DIR gets train.txt, valid.txt and test.txt. A blank line separates documents and
    paragraphs of several lines.

    Args:
        input: files or folders to divide.
        suffixes: of the files that are read in folders; none: files without one.
            Hidden files and folders are left out. Markup is text, too.
    """
    files, read = find_files("--input", chain(*input), suffixes, place.dest)
    divided = divide(files, division)

    def make(work: Work) -> Record:
        print(read, file=sys.stderr)
        divided.show()
        counts = counted(divided, work)
        check_unchanged(files)
        return {"splits": counts}

    publish(place, {"command": "split_text", **divided.settings}, MANIFEST, make)


def counted(division: Division, work: Work | None = None) -> dict[str, dict[str, int]]:
    """Counts by split; the text is written where there is a folder to fill."""
    counts = {}
    for split in division.splits:
        lines = words = characters = size = 0
        found: Counter[str] = Counter()
        path = work.file(f"{split.name}.txt") if work else os.devnull
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for line in split.lines():
                file.write(line)
                lines, size = lines + 1, size + len(line.encode())
                words += len(line.split())
                if characters < COUNTED:
                    found.update(line)
                characters += len(line)
        counts[split.name] = {
            **split.counts,
            **{"lines": lines, "words": words, "characters": characters, "bytes": size},
            "different_characters": len(found),
            "frequent_characters": _frequent(found),
        }
    return counts


def _frequent(found: Counter[str]) -> int:
    """How many of the most frequent characters cover COVERAGE of all."""
    wanted = COVERAGE * found.total()
    for number, (_, count) in enumerate(found.most_common(), 1):
        wanted -= count
        if wanted <= 0:
            return number
    return 0
