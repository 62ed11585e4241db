"""Laws fitted to measurements: exponents, crossings, the cost of a chunk size."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy

from ..harness.markdown import ratio, table

FITTED_POINTS = 4


def growth(line: Mapping[int, float]) -> float | None:
    """Exponent p of value ~ n^p: log-log slope over the last three steps of n.

    None where fewer points than that were measured.
    """
    sizes = sorted(line)[-FITTED_POINTS:]
    if len(sizes) < FITTED_POINTS:
        return None
    return statistics.linear_regression(
        [math.log(n) for n in sizes], [math.log(line[n]) for n in sizes]
    ).slope


def overtakes(line: Mapping[int, float], other: Mapping[int, float]) -> float | None:
    """The n from which ``line`` stays below ``other``, interpolated in log-log scale.

    0 where it is below at every n that both have, infinity where it is not at the last
    one, None where they have fewer than two in common.
    """
    sizes = sorted(set(line) & set(other))
    if len(sizes) < 2:
        return None
    gaps = [math.log(line[n] / other[n]) for n in sizes]
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


EXPONENT_TOLERANCE = 0.25


class Claim(NamedTuple):
    """agrees: None where nothing here can tell."""

    post: str
    measured: str
    agrees: bool | None


def claims_table(claims: Iterable[Claim]) -> str:
    """A row a claim."""
    verdicts = {True: "yes", False: "no", None: "not measured"}
    return table(
        ["The post", "measured", "agrees"],
        [[c.post, c.measured, verdicts[c.agrees]] for c in claims],
    )


def grows_like(
    post: str, lines: Mapping[str, Mapping[int, float]], expected: Mapping[str, float]
) -> Claim:
    """Whether the exponents of the lines are near those expected.

    lines: name -> size -> value; one too short for a fit is left out.
    """
    found = {
        name: exponent
        for name in expected
        if (exponent := growth(lines.get(name, {}))) is not None
    }
    if not found:
        return Claim(post, "too few points", None)
    measured = ", ".join(f"{name} {exponent:.2f}" for name, exponent in found.items())
    agrees = all(
        abs(exponent - expected[name]) <= EXPONENT_TOLERANCE
        for name, exponent in found.items()
    )
    return Claim(post, measured, agrees)


def orders_faster(
    post: str, fast: Mapping[int, float], slow: Mapping[int, float], orders: int
) -> Claim:
    """Whether slow / fast is nearest to 10^orders at the longest length of both."""
    sizes = set(fast) & set(slow)
    if len(sizes) < 2:
        return Claim(post, "too few common lengths", None)
    n = max(sizes)
    agrees = round(math.log10(slow[n] / fast[n])) == orders
    return Claim(post, f"{ratio(fast[n], slow[n])} at n = {n}", agrees)


def shown_crossing(crossing: float | None, line: Iterable[int]) -> str:
    """A result of ``fits.overtakes`` in words; line: the lengths measured."""
    if crossing is None:
        return "-"
    if crossing == 0:
        return f"ahead from n = {min(line)}"
    if crossing == math.inf:
        return f"not up to n = {max(line)}"
    return f"n = {crossing:.0f}"
