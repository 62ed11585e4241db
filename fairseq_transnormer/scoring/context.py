"""What a token is conditioned on: all of its text, or a window of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from .errors import ScoringError

LONGEST_WINDOW = 10**6
# tokens that run together
BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Context:
    """How much of its text a token is predicted from.

    Attributes:
        window: tokens that a model reads at once, fairseq-eval-lm's
            ``--tokens-per-sample``; None: all of the text before the token, by a state
            that is carried along.
        overlap: of a window's tokens those that the windows before it have scored and
            that are read again; fairseq-eval-lm's ``--context-window``.

    Raises:
        ScoringError: a value is not allowed; the field is named.
    """

    window: int | None = None
    overlap: int = 0

    def __post_init__(self):
        if self.window is None:
            if self.overlap:
                raise ScoringError(
                    f"overlap={self.overlap} without a window; allowed: 0, or with "
                    "window=N"
                )
            return
        for name, low, high in (
            ("window", 2, LONGEST_WINDOW),
            # a window of a masked model begins with <s>, and scores a token at least
            ("overlap", 0, self.window - 2),
        ):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ScoringError(f"{name}={value!r}; allowed: {low} to {high}")

    def __str__(self) -> str:
        if self.window is None:
            return "all tokens before, by a carried state"
        again = f", {self.overlap} of them read again" if self.overlap else ""
        return f"windows of {self.window} tokens{again}"


class Window(NamedTuple):
    """Tokens that are scored, after some that are only read."""

    read: list[int]
    scored: list[int]


def windows(
    tokens: Iterable[int], scored: int, read: int, start: list[int]
) -> Iterator[Window]:
    """Cut a text into windows, one after the other.

    Args:
        tokens: of the text; taken as they are needed.
        scored: tokens that a window scores, at most.
        read: tokens in front of those, at most.
        start: what stands in front of the text.
    """
    tokens, before = iter(tokens), start
    while new := list(islice(tokens, scored)):
        yield Window(before, new)
        before = [*before, *new][-read:] if read else []
