"""A picture of all claims: of each, the ratio of the figures that it compares."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from pathlib import Path

from .figures import Dots, dots
from .measured import Measured

# of the verdicts, as pages order them; all eyes tell them apart
COLOURS = {"contradicted": "#d55e00", "holds": "#00366b", "holds in kind": "#2a86d1"}
COLOURS |= {"not separated": "0.5", "not run": "white"}
LIMITS = (0.5, 8.0)
Pair = tuple[Measured, Measured]


def effect(pairs: Sequence[Pair]) -> tuple[list[float], float | None]:
    """What should be higher over what should be lower, of the pair that is weakest.

    Args:
        pairs: the cell that should be lower, and the one that should be higher.

    Returns:
        the ratio of each seed, or of all pairs of seeds where the rows' differ; the
        paper's.
    """

    def ratio(high: float | None, low: float | None) -> float:
        return high / low if high and low else inf

    def ratios(pair: Pair) -> tuple[float, float]:
        low, high = pair
        return ratio(high.value, low.value), ratio(high.cell.paper, low.cell.paper)

    low, high = weakest = min(pairs, key=ratios)
    first, second = low.figures.values, high.figures.values
    are_equal = first.keys() == second.keys()
    seeds = ((a, b) for a, b in product(first, second) if a == b or not are_equal)
    printed = ratios(weakest)[1]
    here = [ratio(second[b], first[a]) for a, b in seeds]
    return here, None if printed == inf else printed


def draw(
    sections: Mapping[str, Sequence[tuple[str, str, Sequence[Pair]]]], picture: Path
) -> None:
    """Draw the effects, here with every seed and in the paper.

    Args:
        sections: heading -> the name of each claim, its verdict and its pairs.
        picture: the image.
    """
    rows: dict[str, Dots] = {}
    order = [*COLOURS]
    drawn = set()
    for heading, claims in sections.items():
        rows[heading] = Dots()
        for name, verdict, pairs in sorted(
            claims, key=lambda each: order.index(each[1])
        ):
            here, printed = effect(pairs)
            rows[name] = Dots(here, printed, COLOURS[verdict])
            drawn |= {verdict} if here else set()
    legend = {verdict: COLOURS[verdict] for verdict in order if verdict in drawn}
    unit = "what should be higher / what should be lower (right of 1: as claimed)"
    dots(rows, unit, "Do the paper's claims hold?", picture, LIMITS, legend)
