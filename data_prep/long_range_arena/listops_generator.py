"""ListOps expressions at random, as the Long-Range Arena draws them.

The root is at depth 1 and an operator. Below it, a node is an operator with probability
1/4, else a digit. At ``max_depth`` all are digits. An operator (MIN, MAX, MED or SM, of
which SM is the sum modulo 10) has 2 to ``max_args`` arguments. All choices are uniform.
An expression is kept if it has more than ``shortest`` and fewer than ``longest``
symbols (Nangia and Bowman, 2018; Tay et al., 2021). The median of an even count is the
mean of the middle two, rounded down.

Many trees are drawn at once, level by level. Only trees of a right length get operators
and digits.
"""

from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import NamedTuple

import numpy as np

from ..folders.options import at_least

DIGITS = 10
SYMBOLS = (*map(str, range(DIGITS)), "[MIN", "[MAX", "[MED", "[SM", "]")
MIN, MAX, MED, SM, END = range(DIGITS, len(SYMBOLS))
OPERATIONS = {
    MIN: min,
    MAX: max,
    MED: lambda values: int(median(values)),
    SM: lambda values: sum(values) % DIGITS,
}
OPERATOR_SHARE = 0.25
FEWEST_ARGUMENTS = 2
TREES_AT_ONCE = 4000
FRUITLESS_ROUNDS = 50


@dataclass(frozen=True)
class ListOpsLaw:
    """What can be changed of the benchmark's distribution."""

    max_depth: int = 10
    max_args: int = 10
    shortest: int = 500
    longest: int = 2000

    def __post_init__(self) -> None:
        at_least(FEWEST_ARGUMENTS, max_depth=self.max_depth, max_args=self.max_args)


class Level(NamedTuple):
    """The nodes of one depth, of all trees, from left to right.

    ``arguments`` is 0 for digits. ``trees`` is the tree of each node.
    """

    arguments: np.ndarray
    trees: np.ndarray


# ids, and the value
Expression = tuple[bytes, int]


def generate(
    count: int, law: ListOpsLaw, random: np.random.Generator
) -> tuple[list[np.ndarray], np.ndarray]:
    """``count`` expressions, uint8 ids each, and their values, uint8.

    Raises ValueError where hardly any expression has such a length.
    """
    found: list[Expression] = []
    rounds = 0
    while len(found) < count:
        rounds += 1
        if rounds > FRUITLESS_ROUNDS and not found:
            raise ValueError(f"{law}: hardly any expression has such a length")
        levels = _of_right_length(_shapes(TREES_AT_ONCE, law, random), law)
        found += _expressions(levels, [_symbols(level, random) for level in levels])
    ids = [np.frombuffer(each, np.uint8) for each, _ in found[:count]]
    return ids, np.array([value for _, value in found[:count]], np.uint8)


def _shapes(trees: int, law: ListOpsLaw, random: np.random.Generator) -> list[Level]:
    # a root that is a digit is never long enough, so that none needs to be drawn
    arguments = random.integers(FEWEST_ARGUMENTS, law.max_args + 1, trees)
    levels = [Level(arguments, np.arange(trees))]
    for depth in range(2, law.max_depth + 1):
        above = levels[-1]
        owners = np.repeat(above.trees, above.arguments)
        arguments = random.integers(FEWEST_ARGUMENTS, law.max_args + 1, len(owners))
        is_operator = random.random(len(owners)) < OPERATOR_SHARE
        if depth == law.max_depth:
            is_operator[:] = False
        levels.append(Level(np.where(is_operator, arguments, 0), owners))
    return levels


def _of_right_length(levels: list[Level], law: ListOpsLaw) -> list[Level]:
    lengths = np.zeros(len(levels[0].trees), int)
    for level in levels:
        brackets = 1 + (level.arguments > 0)
        lengths += np.bincount(level.trees, brackets, len(lengths)).astype(int)
    keep = (lengths > law.shortest) & (lengths < law.longest)
    numbers = np.cumsum(keep) - 1
    selected = []
    for level in levels:
        kept = keep[level.trees]
        selected.append(Level(level.arguments[kept], numbers[level.trees[kept]]))
    return selected


def _symbols(level: Level, random: np.random.Generator) -> np.ndarray:
    digits = random.integers(0, DIGITS, len(level.arguments))
    operators = random.integers(MIN, END, len(level.arguments))
    return np.where(level.arguments > 0, operators, digits).astype(np.uint8)


def _expressions(levels: list[Level], symbols: list[np.ndarray]) -> list[Expression]:
    """The expressions of the trees, from the leaves up."""
    found: list[Expression] = []
    for level, own in zip(levels[::-1], symbols[::-1], strict=True):
        below = iter(found)
        found = [
            _applied(symbol, [*islice(below, count)]) if count else _LEAVES[symbol]
            for symbol, count in zip(
                own.tolist(), level.arguments.tolist(), strict=True
            )
        ]
    return found


def _applied(operator: int, arguments: list[Expression]) -> Expression:
    texts, values = zip(*arguments, strict=True)
    ids = b"".join((bytes((operator,)), *texts, bytes((END,))))
    return ids, OPERATIONS[operator](values)


_IDS = {symbol: index for index, symbol in enumerate(SYMBOLS)}
_LEAVES = [(bytes((digit,)), digit) for digit in range(DIGITS)]
# binarisation of the original files; the operators' own brackets tell all they tell
_GROUPING = {"(", ")"}


def encode(expression: str) -> np.ndarray:
    """An expression as uint8 ids, without the parentheses of the original files.

    Raises ValueError for a symbol that is none, or where brackets do not match.
    """
    symbols = [symbol for symbol in expression.split() if symbol not in _GROUPING]
    unknown = [symbol for symbol in symbols if symbol not in _IDS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no symbol of ListOps")
    ids = np.array([_IDS[symbol] for symbol in symbols], np.uint8)
    depths = np.cumsum((ids >= DIGITS).astype(int) - 2 * (ids == END))
    if not len(ids) or depths[-1] != 0 or (depths[:-1] < 1).any():
        raise ValueError("brackets do not match; truncated?")
    return ids
