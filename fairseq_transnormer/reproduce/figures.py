"""Pictures of results: the effects of all claims, and curves."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

from ..analysis.figures import plain_log_ticks, pyplot, save
from .measured import Measured

# of the verdicts, as pages order them; all eyes tell them apart
COLOURS = {"contradicted": "#d55e00", "holds": "#00366b", "holds in kind": "#2a86d1"}
COLOURS |= {"not separated": "0.5", "not run": "white"}
LIMITS = (0.5, 8.0)
# T2 stands out
FOREGROUND = "#c1272d"
STYLES = ("-", "--", ":", "-.")
Pair = tuple[Measured, Measured]


def effect(pairs: Sequence[Pair]) -> tuple[list[float], float | None]:
    """What should be higher over what should be lower, of the pair that is weakest.

    Of cells that should be lower, and higher: the ratio of each seed, or of all pairs
    of seeds where the rows' differ; and the paper's.
    """

    def ratio(high: float | None, low: float | None) -> float:
        return high / low if high and low else inf

    def ratios(pair: Pair) -> tuple[float, float]:
        low, high = pair
        return ratio(high.value, low.value), ratio(high.cell.paper, low.cell.paper)

    low, high = weakest = min(pairs, key=ratios)
    first, second = low.values, high.values
    are_equal = first.keys() == second.keys()
    seeds = ((a, b) for a, b in product(first, second) if a == b or not are_equal)
    printed = ratios(weakest)[1]
    here = [ratio(second[b], first[a]) for a, b in seeds]
    return here, None if printed == inf else printed


def effects(
    sections: Mapping[str, Sequence[tuple[str, str, Sequence[Pair]]]], target: Path
) -> None:
    """Draw a line a claim: small dots for seeds, a large one for their mean, the paper.

    A ratio beyond the axis is an arrow at its edge, with the figure. ``sections`` has
    the name of each claim by heading, its verdict and its pairs.
    """
    order, (low, high) = [*COLOURS], LIMITS
    rows: list[tuple[str, str, list[float], float | None]] = []
    for heading, claims in sections.items():
        rows.append((heading, "", [], None))
        claims = sorted(claims, key=lambda each: order.index(each[1]))
        rows += [(name, verdict, *effect(pairs)) for name, verdict, pairs in claims]
    size = (8, 1.6 + 0.23 * len(rows))
    figure, axes = pyplot().subplots(figsize=size, layout="constrained")
    axes.axvspan(low, 1, color="0.95", zorder=0)
    axes.axvline(1, color="0.3", linewidth=0.8, zorder=1)
    hollow: dict[str, Any] = {"color": "black", "fillstyle": "none", "markersize": 6}
    for place, (_, verdict, values, paper) in enumerate(rows):
        colour = COLOURS.get(verdict)
        full = {"color": colour, "markeredgecolor": "white", "markersize": 7}
        small = {"color": colour, "markersize": 4}
        marks = [(mean(values), "o", full)] if values else []
        marks += [(value, ".", small) for value in values]
        marks += [(paper, "D", hollow)] if paper is not None else []
        for value, marker, look in marks:
            edge = min(max(value, low), high)
            marker = marker if edge == value else ">" if value > high else "<"
            axes.plot(edge, place, marker, clip_on=False, **look)
            if edge != value and look is not small:
                said = f"{value:.3g}  " if value < low else f"  {value:.3g}"
                side = "right" if value < low else "left"
                axes.text(edge, place, said, ha=side, va="center", fontsize="x-small")
    shown = axes.set_yticks(
        range(len(rows)), [row[0] for row in rows], fontsize="small"
    )
    for tick, (_, verdict, _, _) in zip(shown, rows, strict=True):
        tick.label1.set_fontweight("normal" if verdict else "bold")
    axes.set_ylim(len(rows) - 0.3, -0.7)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    plain_log_ticks(axes.xaxis)
    unit = "what should be higher / what should be lower (right of 1: as claimed)"
    axes.set_xlabel(unit, fontsize="small")
    axes.grid(axis="x", alpha=0.3)
    drawn = {verdict for _, verdict, values, _ in rows if values}
    for verdict in [each for each in order if each in drawn]:
        axes.plot([], [], "o", color=COLOURS[verdict], label=verdict)
    axes.plot([], [], ".", color="0.55", label="each seed")
    axes.plot([], [], "D", label="the paper", **hollow)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle("Do the paper's claims hold?", fontsize="medium")
    save(figure, target)


def curves(
    lines: Mapping[str, Sequence[tuple[float, float, float]]],
    axis: str,
    unit: str,
    title: str,
    target: Path,
    logarithmic: tuple[bool, bool] = (False, False),
) -> None:
    """Draw lines of points (x, y, deviation of y over seeds), by name.

    "T2" in a name makes it stand out. ``axis`` and ``unit`` are what x and y are,
    ``logarithmic`` whether they are; x of few values has a tick for each.
    """
    figure, axes = pyplot().subplots(figsize=(9, 4.5), layout="constrained")
    for number, (name, points) in enumerate(lines.items()):
        xs, ys, errors = zip(*sorted(points), strict=True)
        style = STYLES[number // 10 % len(STYLES)]
        look = {"color": f"C{number % 10}", "linewidth": 1.2, "alpha": 0.8}
        if "T2" in name:
            look = {"color": FOREGROUND, "linewidth": 2.5}
        noise = errors if any(errors) else None
        axes.errorbar(
            xs, ys, noise, label=name, linestyle=style, marker=".", capsize=2, **look
        )
    scales = ("x", axes.xaxis), ("y", axes.yaxis)
    for is_log, (name, one) in zip(logarithmic, scales, strict=True):
        if is_log and one.get_data_interval()[0] > 0:
            axes.set(**{f"{name}scale": "log"})
            plain_log_ticks(one)
    ticks = sorted({x for points in lines.values() for x, _, _ in points})
    if logarithmic[0] and len(ticks) <= 12:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=30)
        axes.minorticks_off()
    axes.set_xlabel(axis)
    axes.set_ylabel(unit)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(title, fontsize="medium")
    save(figure, target)
