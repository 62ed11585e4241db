"""Types of option values for argparse; their errors name the value and the range."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

SHOWN_CHARACTERS = 40


def integer_between(low: int, high: int | None = None) -> Callable[[str], int]:
    """The type of an integer in [low, high]; without ``high``, from ``low`` on."""

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or value < low or (high is not None and value > high):
            to = "" if high is None else f" to {high}"
            raise _refused(text, f"integers from {low}{to}")
        return value

    return integer


def number_from_zero(text: str) -> float:
    """The type of a finite number from 0 on."""
    return _number(text, lambda x: x >= 0, "numbers from 0")


def positive_number(text: str) -> float:
    """The type of a finite number above 0."""
    return _number(text, lambda x: x > 0, "numbers above 0")


def _number(text: str, is_allowed: Callable[[float], bool], allowed: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and is_allowed(value)):
        raise _refused(text, allowed)
    return value


def _refused(text: str, allowed: str) -> argparse.ArgumentTypeError:
    shown = text if len(text) <= SHOWN_CHARACTERS else f"{text[:20]}..."
    return argparse.ArgumentTypeError(f"{shown!r}; allowed: {allowed}")


positive_integer = integer_between(1)
