"""Lines of text files, and the units that they are scored by."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import TextIO

from .errors import ScoringError

STDIN = "-"
UNITS = ("line", "document", "file")


def read_lines(name: str | Path) -> Iterator[str]:
    """The lines of a file, or of stdin by the name -, as they are needed.

    Raises:
        ScoringError: it cannot be read as UTF-8.
    """
    try:
        if str(name) == STDIN:
            yield from _decoded(sys.stdin)
            return
        with open(name, encoding="utf-8-sig") as file:
            yield from file
    except OSError as error:
        raise ScoringError(f"{name}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        wrong = error.object[error.start]
        raise ScoringError(
            f"{name}: not UTF-8: byte 0x{wrong:02x}; allowed: text in UTF-8"
        ) from error


def _decoded(file: TextIO) -> Iterator[str]:
    """stdin is UTF-8, whatever the locale."""
    if hasattr(file, "reconfigure"):
        file.reconfigure(encoding="utf-8", errors="strict")
    yield from file


def units_of(lines: Iterable[str], by: str) -> Iterator[tuple[int, Iterable[str]]]:
    """(number of its first line, lines) of each unit.

    Args:
        lines: of a file.
        by: "line"; "document": the lines up to a blank one, as fairseq's
            ``--sample-break-mode complete_doc`` has them; "file": all of them. A line
            or document that is blank is none.
    """
    numbered = enumerate(lines, 1)
    if by == "file":
        yield 1, (line for _, line in numbered)
    elif by == "line":
        yield from ((number, [line]) for number, line in numbered if line.strip())
    else:
        for has_text, group in groupby(numbered, lambda pair: bool(pair[1].strip())):
            if has_text:
                first = next(group)
                lines_of_it = chain([first], group)  # noqa: B031 (the rest of it)
                yield first[0], (line for _, line in lines_of_it)
