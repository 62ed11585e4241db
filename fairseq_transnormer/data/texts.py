"""Texts that users hand in: what they may be, and lines of files and of stdin."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

STDIN = "-"
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
    """An argparse type: text in UTF-8, by whatever locale Python has decoded it."""
    try:
        return os.fsencode(given).decode("utf-8")
    except UnicodeError:
        return given  # ``check_text`` refuses it


def check_text(text: object, name: str = "text") -> None:
    """Refuse what cannot be encoded, such as bytes that are not UTF-8.

    Args:
        text: a prompt; Python keeps undecodable bytes of a command line as surrogates.
        name: of the text, for the message.

    Raises:
        ValueError: it is no text, or has characters that are none.
    """
    if not isinstance(text, str):
        raise ValueError(f"{name}={repr(text)[:80]}; allowed: text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise ValueError(
            f"{name}={ascii(text)[:80]}: {ascii(text[problem.start])} at "
            f"{problem.start} is no character; allowed: text in UTF-8"
        ) from problem


def read_lines(name: str | Path, option: str = "") -> Iterator[str]:
    """The lines of a file, or of stdin by the name -, as they are needed.

    Args:
        name: of a file in UTF-8, with or without a byte order mark.
        option: of a command line, by which the file was given.

    Raises:
        ValueError: it cannot be read.
    """
    shown = f"{option} {name}".strip()
    try:
        if str(name) == STDIN:
            yield from _decoded(sys.stdin)
            return
        with open(name, encoding=_ENCODING) as file:
            yield from file
    except OSError as problem:
        raise ValueError(f"{shown}: cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        wrong = problem.object[problem.start]
        raise ValueError(
            f"{shown}: not UTF-8: byte 0x{wrong:02x}; allowed: text in UTF-8"
        ) from problem


def read_given_lines(name: str, kind: str) -> Iterator[str]:
    """``read_lines`` of ``--input``, which has one at least.

    Args:
        name: of the file, or -.
        kind: what a line is, for the message.

    Raises:
        ValueError: it cannot be read, or has no line.
    """
    found = False
    for line in read_lines(name, "--input"):
        found = True
        yield line
    if not found:
        raise ValueError(f"--input {name}: no line in it; a line is a {kind}")


def tell_unknown_words(text: str, words: list[str], read_as: str) -> None:
    """Name the words of a text that its dictionary lacks, if there are any, on stderr.

    Args:
        text: its name.
        words: that the dictionary lacks.
        read_as: the symbol that stands for them.
    """
    if words:
        print(
            f"{text}: {len(words)} not in the dictionary, read as {read_as}: "
            f"{', '.join(words)}",
            file=sys.stderr,
        )


def print_utf8() -> None:
    """What is printed from here on is UTF-8, whatever the locale."""
    if isinstance(sys.stdout, TextIOWrapper):
        # without errors= it would also be strict, and names of files may be no UTF-8
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)


def _decoded(file: TextIO) -> Iterator[str]:
    """stdin is UTF-8, whatever the locale, and its lines are those of a file."""
    if isinstance(file, TextIOWrapper):
        file.reconfigure(encoding=_ENCODING, errors="strict", newline=None)
    yield from file
