"""Laws fitted to measurements: exponents, crossings, the cost of a chunk size."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy
from pandas import Series

FITTED_POINTS = 4


def growth(line: Series) -> float | None:
    """Exponent p of value ~ n^p: log-log slope over the last three steps of n.

    line: values by n. None where fewer points than that were measured.
    """
    line = line.dropna().sort_index().iloc[-FITTED_POINTS:]
    if len(line) < FITTED_POINTS:
        return None
    return statistics.linear_regression(
        [math.log(n) for n in line.index], [math.log(value) for value in line]
    ).slope


def overtakes(line: Series, other: Series) -> float | None:
    """The n from which ``line`` stays below ``other``, interpolated in log-log scale.

    0 where it is below at every n that both have, infinity where it is not at the last
    one, None where they have fewer than two in common.
    """
    gaps = (line / other).dropna().sort_index().map(math.log)
    if len(gaps) < 2:
        return None
    sizes, gaps = list(gaps.index), list(gaps)
    if gaps[-1] >= 0:
        return math.inf
    ahead = len(gaps) - 1
    while ahead > 0 and gaps[ahead - 1] < 0:
        ahead -= 1
    if ahead == 0:
        return 0.0
    part = gaps[ahead - 1] / (gaps[ahead - 1] - gaps[ahead])
    return sizes[ahead - 1] * (sizes[ahead] / sizes[ahead - 1]) ** part


class ChunkCost(NamedTuple):
    """Seconds of a token and head: state d^2 + scores c d + sums d^2 / c.

    deviation: median of the fit's relative errors.
    """

    state: float
    scores: float
    sums: float
    deviation: float

    def seconds(self, chunk_size: int, width: int) -> float:
        """Of one token and head."""
        return (
            self.state * width**2
            + self.scores * chunk_size * width
            + self.sums * width**2 / chunk_size
        )

    def best(self, width: int) -> float | None:
        """The chunk size with the least seconds; None where the law has none."""
        if not self.scores or not self.sums:
            return None
        return math.sqrt(self.sums * width / self.scores)


def chunk_cost(points: Sequence[tuple[int, int, float]], with_sums: bool) -> ChunkCost:
    """Fit the post's t d^2 + t c d to (chunk size, width, seconds of a token and head).

    with_sums: also (t / c) d^2, the cumulative sum, which its listing names and its
    total leaves out. Least squares of the relative errors, no coefficient below 0.
    """
    terms = numpy.array([[d * d, c * d, d * d / c] for c, d, _ in points], float)
    seconds = numpy.array([s for *_, s in points])
    relative = terms / seconds[:, None]
    columns = (0, 1, 2) if with_sums else (0, 1)
    best, least = numpy.zeros(3), math.inf
    # the least non-negative solution solves the problem of some of the columns
    for count in range(1, len(columns) + 1):
        for some in map(list, combinations(columns, count)):
            found = numpy.linalg.lstsq(
                relative[:, some], numpy.ones(len(points)), rcond=None
            )[0]
            error = ((relative[:, some] @ found - 1) ** 2).sum()
            if (found >= 0).all() and error < least:
                least, best = error, numpy.zeros(3)
                best[some] = found
    deviation = numpy.median(abs(relative @ best - 1))
    return ChunkCost(*best.tolist(), float(deviation))
