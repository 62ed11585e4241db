"""Texts that users hand in: what they may be, and lines of files and of stdin."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from io import TextIOWrapper
from pathlib import Path

# where str.splitlines cuts, and tabs, which stand between fields
_BREAKS = re.compile(r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_LINE_BREAKS = re.compile(r"[\r\n]+")
# a byte order mark is no part of the first word
_ENCODING = "utf-8-sig"


def joined_lines(text: str) -> str:
    """``text`` with a space for line breaks, which no line of a training has."""
    return _LINE_BREAKS.sub(" ", text)


def one_line_text(text: str) -> str:
    """``text`` without tabs and line breaks, which become a space each."""
    return _BREAKS.sub(" ", text).strip()


def argument_text(given: str) -> str:
    """A text of a command line as UTF-8, whatever locale Python has decoded it by."""
    try:
        return os.fsencode(given).decode("utf-8")
    except UnicodeError:
        return given  # ``check_text`` refuses it


def check_text(text: str, name: str = "text") -> None:
    """Raise ValueError for what cannot be encoded, such as bytes that are not UTF-8,
    which Python keeps as surrogates in a command line."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must be UTF-8: {error}") from error


def read_lines(name: str | Path) -> Iterator[str]:
    """The lines of a file in UTF-8, or of stdin by the name -, as they are needed.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not UTF-8.
    """
    stdin = nullcontext(sys.stdin)  # stays open
    try:
        with stdin if str(name) == "-" else open(name) as file:
            if isinstance(file, TextIOWrapper):  # whatever the locale
                file.reconfigure(encoding=_ENCODING, errors="strict", newline=None)
            yield from file
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} must be UTF-8: {error}") from error


def read_given_lines(name: str) -> Iterator[str]:
    """``read_lines``; ValueError if there is none."""
    line = None
    for line in read_lines(name):
        yield line
    if line is None:
        raise ValueError(f"{name} has no line")


def tell_unknown_words(text: str, words: list[str]) -> None:
    """Name the words of a text that a dictionary lacks, on stderr."""
    if words:
        said = f"{len(words)} not in the dictionary, read as <unk>"
        print(f"{text}: {said}: {', '.join(words)}", file=sys.stderr)


def print_utf8() -> None:
    """What is printed from here on is UTF-8, whatever the locale."""
    if isinstance(sys.stdout, TextIOWrapper):
        # without errors= it would also be strict, and names of files may be no UTF-8
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)
