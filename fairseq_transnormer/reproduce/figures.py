"""Pictures of results, by two functions: dots with every seed, and curves."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..analysis.figures import plain_log_ticks, pyplot, save

# figures that are further apart are drawn on a logarithmic scale
WIDEST_LINEAR = 20
LEAST_SPAN = 0.1  # of a linear axis, as a share of the largest figure
PANELS_A_ROW = 4
# T2 stands out, others are grey
FOREGROUND, BACKGROUND = "#c1272d", "0.55"
STYLES = ("-", "--", ":", "-.")


@dataclass
class Dots:
    """A panel of ``dots``: a line a row.

    Attributes:
        title: of the panel.
        values: row, from the top down -> each seed's value.
        unit: what the values are, and which is better.
        paper: row -> the paper's value, or what it prints, as text.
        on_axis: whether the paper's values are drawn where they lie; else beside.
        colours: row -> colour; others are grey.
        reference: where a line is drawn across all rows.
        logarithmic: None for where figures are far apart.
        limits: of the axis; a value beyond them is drawn as an arrow at the edge.
    """

    title: str
    values: Mapping[str, Sequence[float]]
    unit: str = ""
    paper: Mapping[str, float | str] = field(default_factory=dict)
    on_axis: bool = False
    colours: Mapping[str, str] = field(default_factory=dict)
    reference: float | None = None
    logarithmic: bool | None = None
    limits: tuple[float, float] | None = None


def dots(panels: Sequence[Dots], title: str, target: Path) -> None:
    """Draw the rows of each panel: a small dot for each seed, a large one for the mean.

    The panels have the same rows.
    """
    rows = list(dict.fromkeys(row for panel in panels for row in panel.values))
    rows.reverse()  # from the bottom up
    across = min(len(panels), PANELS_A_ROW)
    lines = -(-len(panels) // PANELS_A_ROW)
    size = (max(8.0, 2.5 + 2.8 * across), 0.8 + (0.9 + 0.28 * len(rows)) * lines)
    figure, grid = pyplot().subplots(
        lines, across, figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    for axes, panel in itertools.zip_longest(grid.flat, panels):
        if panel is None:
            axes.set_axis_off()
        else:
            _draw_dots(axes, panel, rows)
    figure.suptitle(title, fontsize="medium")
    save(figure, target)


def _draw_dots(axes, panel: Dots, rows: list[str]) -> None:
    inside = [value for values in panel.values.values() for value in values]
    if panel.on_axis:
        inside += [v for v in panel.paper.values() if not isinstance(v, str)]
    low, high = panel.limits or (min(inside), max(inside))
    for place, row in enumerate(rows):
        values = panel.values.get(row, ())
        colour = panel.colours.get(row, BACKGROUND)
        mean = sum(values) / len(values) if values else None
        for value in values:
            axes.plot(min(max(value, low), high), place, ".", color=colour, alpha=0.6)
        if mean is not None:
            marker = "o" if low <= mean <= high else ">" if mean > high else "<"
            shown = min(max(mean, low), high)
            axes.plot(shown, place, marker, color=colour, markersize=7)
        printed = panel.paper.get(row)
        if panel.on_axis and printed is not None and not isinstance(printed, str):
            shown = min(max(printed, low), high)
            axes.plot(shown, place, "D", color="black", fillstyle="none", markersize=6)
    axes.set_yticks(range(len(rows)), rows, fontsize="small")
    axes.set_ylim(-0.7, len(rows) - 0.3)
    is_log = panel.logarithmic
    if is_log is None:
        is_log = low > 0 and high > WIDEST_LINEAR * low
    if is_log:
        axes.set_xscale("log")
    elif panel.limits is None:
        missing = LEAST_SPAN * max(abs(low), abs(high)) - (high - low)
        edge = max(missing / 2, 0.08 * (high - low))
        axes.set_xlim(low - edge, high + edge)
    if is_log:
        plain_log_ticks(axes.xaxis)
    if panel.reference is not None:
        axes.axvline(panel.reference, color="0.3", linewidth=0.8)
    axes.set_xlabel(panel.unit, fontsize="small")
    axes.set_title(panel.title, fontsize="medium")
    axes.grid(axis="x", alpha=0.3)
    axes.tick_params(axis="x", labelsize="small")
    if panel.paper and not panel.on_axis:
        beside = axes.twinx()
        beside.set_ylim(axes.get_ylim())
        shown = [str(panel.paper.get(row, "")) for row in rows]
        beside.set_yticks(range(len(rows)), shown, fontsize="x-small", color="0.3")
        beside.tick_params(length=0)
        beside.set_ylabel("the paper's figure", fontsize="x-small", color="0.3")


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
    greys = itertools.count()
    for name, points in lines.items():
        xs, ys, errors = zip(*sorted(points), strict=True)
        number = next(greys)
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
