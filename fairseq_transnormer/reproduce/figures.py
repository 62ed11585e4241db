"""Pictures of results, by two functions: dots with every seed, and curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from ..analysis.figures import plain_log_ticks, pyplot, save

# T2 stands out, others are grey
FOREGROUND, BACKGROUND = "#c1272d", "0.55"
STYLES = ("-", "--", ":", "-.")


@dataclass
class Dots:
    """A row of ``dots``: each seed's value, the paper's, and their colour."""

    values: Sequence[float] = ()
    paper: float | None = None
    colour: str = BACKGROUND


def dots(
    rows: Mapping[str, Dots],
    unit: str,
    title: str,
    target: Path,
    limits: tuple[float, float],
    legend: Mapping[str, str],
) -> None:
    """Draw ratios, a line a row: small dots for seeds, a large one for their mean.

    Args:
        rows: name -> ratios, from the top down; a row without any is a heading.
        unit, title: of the axis, on which 1 divides the ground; of the picture.
        target: the image.
        limits: of the axis; a value beyond is an arrow at the edge, with its figure.
        legend: what a colour means -> the colour.
    """
    size = (8, 1.6 + 0.23 * len(rows))
    figure, axes = pyplot().subplots(figsize=size, layout="constrained")
    low, high = limits
    axes.axvspan(low, 1, color="0.95", zorder=0)
    axes.axvline(1, color="0.3", linewidth=0.8, zorder=1)
    hollow: dict[str, Any] = {"color": "black", "fillstyle": "none", "markersize": 6}
    for place, row in enumerate(rows.values()):
        full = {"color": row.colour, "markeredgecolor": "white", "markersize": 7}
        small = {"color": row.colour, "markersize": 4}
        marks = [(mean(row.values), "o", full)] if row.values else []
        marks += [(value, ".", small) for value in row.values]
        marks += [(row.paper, "D", hollow)] if row.paper is not None else []
        for value, marker, look in marks:
            edge = min(max(value, low), high)
            marker = marker if edge == value else ">" if value > high else "<"
            axes.plot(edge, place, marker, clip_on=False, **look)
            if edge != value and look is not small:
                said = f"{value:.3g}  " if value < low else f"  {value:.3g}"
                side = "right" if value < low else "left"
                axes.text(edge, place, said, ha=side, va="center", fontsize="x-small")
    names = axes.set_yticks(range(len(rows)), rows, fontsize="small")
    for name, row in zip(names, rows.values(), strict=True):
        is_heading = not row.values and row.paper is None
        name.label1.set_fontweight("bold" if is_heading else "normal")
    axes.set_ylim(len(rows) - 0.3, -0.7)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    plain_log_ticks(axes.xaxis)
    axes.set_xlabel(unit, fontsize="small")
    axes.grid(axis="x", alpha=0.3)
    for label, colour in legend.items():
        axes.plot([], [], "o", color=colour, label=label)
    axes.plot([], [], ".", color=BACKGROUND, label="each seed")
    axes.plot([], [], "D", label="the paper", **hollow)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle(title, fontsize="medium")
    save(figure, target)


def curves(
    lines: Mapping[str, Sequence[tuple[float, float, float]]],
    axis: str,
    unit: str,
    title: str,
    target: Path,
    logarithmic: tuple[bool, bool] = (False, False),
) -> None:
    """Draw lines of points (x, y, deviation of y over seeds).

    Args:
        lines: name -> points; "T2" in a name makes it stand out.
        axis, unit: what x and y are, and which y is better.
        title: of the picture.
        target: the image.
        logarithmic: whether x and y are. x of few values has a tick for each.
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
    for is_log, one, scale in zip(
        logarithmic, (axes.xaxis, axes.yaxis), (axes.set_xscale, axes.set_yscale),
        strict=True,
    ):  # fmt: skip
        low, _ = one.get_data_interval()
        if is_log and low > 0:
            scale("log")
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
