"""What a good error message has: the field, its value, and what is allowed.

Tests ask for these and leave the wording free.
"""

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def assert_names(message: object, *parts: object) -> None:
    """Assert that a message names each of ``parts`` as a word of its own.

    Args:
        message: an exception, pytest's ``ExceptionInfo``, or a text such as stderr.
        parts: fields, values, allowed values; letters' case is left aside. Of a path
            the last two parts suffice, since messages may shorten it.
    """
    text = str(getattr(message, "value", message))
    assert "Traceback (most recent call last)" not in text, text
    missing = [part for part in map(_as_word, parts) if not _has_word(text, part)]
    assert not missing, f"the message does not name {missing}:\n{text}"


@contextmanager
def refuses(
    kind: type[BaseException], *parts: object, alone: bool = False
) -> Iterator[pytest.ExceptionInfo]:
    """``pytest.raises(kind)`` whose message, ``alone`` in one line, names ``parts``."""
    with pytest.raises(kind) as caught:
        yield caught
    assert not (alone and "\n" in str(caught.value)), str(caught.value)
    assert_names(caught, *parts)


def lines_naming(text: str, *parts: object) -> list[str]:
    """The lines of a log or an output that name each of ``parts``."""
    words = [_as_word(part) for part in parts]
    return [
        line
        for line in text.splitlines()
        if all(_has_word(line, word) for word in words)
    ]


def command_refuses(
    main: Callable[[list[str]], int | None],
    arguments: Iterable[object],
    capsys: pytest.CaptureFixture,
    *parts: object,
    code: int = 2,
    alone: bool = False,
) -> str:
    """Assert that a command, run in this process, ends with a code and a line.

    Args:
        main: takes the arguments; returns the exit code, or raises SystemExit.
        parts: what the last line on stderr names. The lines above it are a log or
            argparse's usage, which has every option's name and so proves nothing.
        code: that it must end with.
        alone: whether no other line may be there.

    Returns:
        That line.
    """
    capsys.readouterr()
    try:
        ended = main([str(each) for each in arguments])
    except SystemExit as end:
        ended = end.code
    message = capsys.readouterr().err
    assert ended == code, f"exit code {ended}, not {code}: {message}"
    return _last_line(message, parts, alone)


def process_refuses(done: subprocess.CompletedProcess[str], *parts: object) -> str:
    """``command_refuses`` of a process that has ended."""
    assert done.returncode == 2, f"exit code {done.returncode}: {done.stderr}"
    return _last_line(done.stderr, parts, alone=False)


def _last_line(text: str, parts: tuple, alone: bool) -> str:
    assert "Traceback (most recent call last)" not in text, text
    above, _, line = text.strip().rpartition("\n")
    assert not (alone and above), text
    assert_names(line, *parts)
    return line


def _as_word(part: Any) -> str:
    return "/".join(part.parts[-2:]) if isinstance(part, Path) else str(part)


def _has_word(text: str, word: str) -> bool:
    """Whether ``word`` stands in ``text``, not as part of a longer word or number."""
    before = r"(?<!\w)(?<!\d[.,])" if re.match(r"\w", word) else ""
    after = r"(?!\w|[.,]\d)" if re.search(r"\w$", word) else ""
    return re.search(before + re.escape(word) + after, text, re.I) is not None
