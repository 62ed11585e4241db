"""A picture of all claims: of each, the ratio of the figures that it compares."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from pathlib import Path

from .claims import CONTRADICTED, HOLDS, IN_KIND, NOT_RUN, UNCLEAR, VERDICTS, Judged
from .figures import Dots, dots
from .measured import Measured

# all eyes tell them apart
COLOURS = {CONTRADICTED: "#d55e00", HOLDS: "#00366b", IN_KIND: "#2a86d1"}
COLOURS |= {UNCLEAR: "0.5", NOT_RUN: "white"}
LIMITS = (0.5, 8.0)


def effect(judged: Judged) -> tuple[list[float], float | None]:
    """What should be higher over what should be lower, of the pair that is weakest.

    Returns:
        the ratio of each seed, or of all pairs of seeds where the rows' differ; the
        paper's.
    """

    def ratio(high: float | None, low: float | None) -> float:
        return high / low if high and low else inf

    def ratios(pair: Sequence[Measured]) -> tuple[float, float]:
        low, high = pair
        return ratio(high.value, low.value), ratio(high.cell.paper, low.cell.paper)

    low, high = weakest = min(judged.pairs, key=ratios)
    first, second = low.figures.values, high.figures.values
    are_equal = first.keys() == second.keys()
    pairs = ((a, b) for a, b in product(first, second) if a == b or not are_equal)
    printed = ratios(weakest)[1]
    here = [ratio(second[b], first[a]) for a, b in pairs]
    return here, None if printed == inf else printed


def draw(judged: Mapping[str, list[Judged]], picture: Path) -> None:
    """Draw the effects, here with every seed and in the paper."""
    rows: dict[str, Dots] = {}
    drawn = set()
    for section, claims in judged.items():
        rows[section] = Dots()
        for each in sorted(claims, key=lambda each: VERDICTS.index(each.verdict)):
            here, printed = effect(each)
            name = each.claim.short or each.claim.sentence
            rows[name] = Dots(here, printed, COLOURS[each.verdict])
            drawn |= {each.verdict} if here else set()
    legend = {verdict: COLOURS[verdict] for verdict in VERDICTS if verdict in drawn}
    unit = "what should be higher / what should be lower (right of 1: as claimed)"
    dots(rows, unit, "Do the paper's claims hold?", picture, LIMITS, legend)
