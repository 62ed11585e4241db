"""ListOps expressions at random, as the Long-Range Arena draws them.

From the root at depth 1 a node above ``max_depth`` is an operator with probability
1/4 and a digit otherwise; at ``max_depth`` it is a digit. An operator (MIN, MAX, MED or
SM, the sum modulo 10) has 2 to ``max_args`` arguments. All choices are uniform. An
expression is kept if it has more than ``shortest`` and fewer than ``longest`` symbols
(Nangia and Bowman, 2018; Tay et al., 2021). The median of an even count is the mean of
the middle two, rounded down.

Many trees are drawn at once, level by level: their shapes first, so that only those of
a right length get operators and digits.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..folders.options import at_least

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


@dataclass
class Level:
    """The nodes of one depth, of all trees, from left to right.

    ``arguments`` is 0 for digits. ``trees`` is the tree of each node.
    """

    arguments: np.ndarray
    trees: np.ndarray

    @property
    def parents(self) -> np.ndarray:
        """For each node of the level below, the node above it."""
        return np.repeat(np.arange(len(self.arguments)), self.arguments)


def generate(
    count: int, law: ListOpsLaw, random: np.random.Generator
) -> tuple[list[np.ndarray], np.ndarray]:
    """``count`` expressions, uint8 ids each, and their values, uint8.

    Raises ValueError where hardly any expression has such a length.
    """
    expressions: list[np.ndarray] = []
    values: list[np.ndarray] = []
    rounds = 0
    while len(expressions) < count:
        rounds += 1
        if rounds > FRUITLESS_ROUNDS and not expressions:
            raise ValueError(
                f"{law}: none of {FRUITLESS_ROUNDS * TREES_AT_ONCE:,} expressions has "
                "more than shortest and fewer than longest symbols"
            )
        levels = _shapes(TREES_AT_ONCE, law, random)
        levels = _selected(levels, _lengths_are_right(levels, law))
        symbols = [_symbols(level, random) for level in levels]
        expressions += _written(levels, symbols)
        values.append(_evaluated(levels, symbols))
    return expressions[:count], np.concatenate(values)[:count]


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


def _lengths_are_right(levels: list[Level], law: ListOpsLaw) -> np.ndarray:
    lengths = np.zeros(len(levels[0].trees), int)
    for level in levels:
        brackets = 1 + (level.arguments > 0)
        lengths += np.bincount(level.trees, brackets, len(lengths)).astype(int)
    return (lengths > law.shortest) & (lengths < law.longest)


def _selected(levels: list[Level], keep: np.ndarray) -> list[Level]:
    numbers = np.cumsum(keep) - 1
    selected = []
    for level in levels:
        kept = keep[level.trees]
        selected.append(Level(level.arguments[kept], numbers[level.trees[kept]]))
    return selected


def _symbols(level: Level, random: np.random.Generator) -> np.ndarray:
    digits = random.integers(0, DIGITS, len(level.arguments))
    operators = random.integers(MIN, MIN + len(OPERATORS), len(level.arguments))
    return np.where(level.arguments > 0, operators, digits).astype(np.uint8)


def _written(levels: list[Level], symbols: list[np.ndarray]) -> list[np.ndarray]:
    """The expressions as ids from left to right."""
    sizes = [np.ones(len(level.arguments), int) for level in levels]
    for depth in reversed(range(len(levels))):
        sizes[depth] += levels[depth].arguments > 0
        if depth + 1 < len(levels):
            below = np.bincount(
                levels[depth].parents, sizes[depth + 1], len(sizes[depth])
            )
            sizes[depth] += below.astype(int)
    ends = np.cumsum(sizes[0])
    written = np.empty(ends[-1] if len(ends) else 0, np.uint8)
    starts = ends - sizes[0]
    for depth, level in enumerate(levels):
        written[starts] = symbols[depth]
        is_operator = level.arguments > 0
        written[(starts + sizes[depth] - 1)[is_operator]] = END
        if depth + 1 < len(levels):
            parents, below = level.parents, sizes[depth + 1]
            before = np.cumsum(below) - below
            first = np.searchsorted(parents, parents)
            starts = starts[parents] + 1 + before - before[first]
    return np.split(written, ends[:-1]) if len(ends) else []


def _evaluated(levels: list[Level], symbols: list[np.ndarray]) -> np.ndarray:
    values = symbols[-1].astype(int)
    for level, own in zip(levels[-2::-1], symbols[-2::-1], strict=True):
        results = own.astype(int)
        where = np.flatnonzero(level.arguments)
        if len(where):
            counts = level.arguments[where]
            results[where] = _applied(own[where], counts, values)
        values = results
    return values.astype(np.uint8)


def _applied(
    operators: np.ndarray, counts: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Each operator on its own run of ``counts`` consecutive ``values``."""
    ends = np.cumsum(counts)
    starts = ends - counts
    runs = np.repeat(np.arange(len(counts)), counts)
    ordered = values[np.lexsort((values, runs))]
    middle = ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]
    return np.select(
        [operators == MIN, operators == MAX, operators == MED, operators == SM],
        [
            ordered[starts],
            ordered[ends - 1],
            middle // 2,
            np.add.reduceat(values, starts) % DIGITS,
        ],
    )


DIGITS = 10
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
SYMBOLS = (*map(str, range(DIGITS)), *OPERATORS, "]")
MIN, MAX, MED, SM, END = range(DIGITS, len(SYMBOLS))

_IDS = {symbol: index for index, symbol in enumerate(SYMBOLS)}
# binarisation of the original files; the operators' own brackets tell all they tell
_GROUPING = {"(", ")"}


def encode(expression: str) -> np.ndarray:
    """An expression as uint8 ids, without the parentheses of the original files.

    Raises ValueError for a symbol that is none, or where brackets do not match.
    """
    symbols = [symbol for symbol in expression.split() if symbol not in _GROUPING]
    unknown = [symbol for symbol in symbols if symbol not in _IDS]
    if unknown:
        raise ValueError(
            f"unknown symbol {unknown[0]!r}; allowed are {' '.join(SYMBOLS)} ( )"
        )
    ids = np.array([_IDS[symbol] for symbol in symbols], np.uint8)
    depths = np.cumsum((ids >= DIGITS).astype(int) - 2 * (ids == END))
    if not len(ids) or depths[-1] != 0 or (depths[:-1] < 1).any():
        raise ValueError(
            f"not one whole expression but {len(ids)} symbols whose brackets do not "
            "match; truncated?"
        )
    return ids


def decode(ids: Iterable[int]) -> str:
    """The expression, with a blank between the symbols."""
    return " ".join(SYMBOLS[index] for index in ids)
