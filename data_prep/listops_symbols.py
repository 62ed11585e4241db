"""The 15 symbols of ListOps, and the original files' notation read as them."""

from collections.abc import Iterable

import numpy as np

from data_prep.errors import InputError

DIGITS = 10
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
SYMBOLS = (*map(str, range(DIGITS)), *OPERATORS, "]")
MIN, MAX, MED, SM, END = range(DIGITS, len(SYMBOLS))

_IDS = {symbol: index for index, symbol in enumerate(SYMBOLS)}
# binarisation of the original files; the operators' own brackets tell all they tell
_GROUPING = {"(", ")"}


def encode(expression: str) -> np.ndarray:
    """An expression as uint8 ids, without the parentheses of the original files.

    Raises InputError for a symbol that is none, or where brackets do not match.
    """
    symbols = [symbol for symbol in expression.split() if symbol not in _GROUPING]
    unknown = [symbol for symbol in symbols if symbol not in _IDS]
    if unknown:
        raise InputError(
            f"unknown symbol {unknown[0]!r}; allowed are {' '.join(SYMBOLS)} ( )"
        )
    ids = np.array([_IDS[symbol] for symbol in symbols], np.uint8)
    depths = np.cumsum((ids >= DIGITS).astype(int) - 2 * (ids == END))
    if not len(ids) or depths[-1] != 0 or (depths[:-1] < 1).any():
        raise InputError(
            f"not one whole expression but {len(ids)} symbols whose brackets do not "
            "match; truncated?"
        )
    return ids


def decode(ids: Iterable[int]) -> str:
    """The expression, with a blank between the symbols."""
    return " ".join(SYMBOLS[index] for index in ids)
