"""Types of options' values for argparse; their errors name the value and the range."""

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


def number_between(low: float, high: float = math.inf) -> Callable[[str], float]:
    """The type of a finite number in [low, high]."""
    to = "" if high == math.inf else f" to {high:g}"
    return _number(lambda x: low <= x <= high, f"numbers from {low:g}{to}")


def number_above(low: float) -> Callable[[str], float]:
    """The type of a finite number above ``low``."""
    return _number(lambda x: x > low, f"numbers above {low:g}")


def _number(
    is_allowed: Callable[[float], bool], allowed: str
) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and is_allowed(value)):
            raise _refused(text, allowed)
        return value

    return number


def _refused(text: str, allowed: str) -> argparse.ArgumentTypeError:
    shown = text if len(text) <= SHOWN_CHARACTERS else f"{text[:20]}..."
    return argparse.ArgumentTypeError(f"{shown!r}; allowed: {allowed}")


positive_integer = integer_between(1)
positive_number = number_above(0)
seed = integer_between(1, 2**63 - 1)
