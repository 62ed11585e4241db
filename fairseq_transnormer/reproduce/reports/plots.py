"""A measured table as a picture."""

import re
from pathlib import Path
from typing import Any

from ...analysis.figures import plain_log_ticks, pyplot, save
from ...data.typed_mappings import ABOVE_0
from ..tables.definitions import plain
from .markdown import deviation_of, number, updates_of

CURVES = {
    "valid_ppl": "validation perplexity",
    "valid_loss": "validation loss (bits a symbol)",
    "valid_accuracy": "validation accuracy (%)",
}
METRICS = CURVES | {
    "test_ppl": "test perplexity",
    "test_loss": "test loss (bits a symbol)",
    "accuracy": "validation accuracy (%)",
    "mismatched_accuracy": "validation accuracy (%)",
    "test_accuracy": "test accuracy (%)",
    "macro_f1": "macro-averaged F1 (%)",
    "gradient_rsd": "relative standard deviation",
}
SPEED = re.compile(r"(infer|train)_\d+K")
OF_A_PART = re.compile(r"_\d+$")  # test_accuracy_64: of lines of 64 pairs
FEWEST_POINTS = 4  # of a learning curve
PANELS_A_ROW = 4
# figures that are further apart are drawn on a logarithmic scale
WIDEST_LINEAR = 20
LEAST_SPAN = 0.1  # of a linear scale, as a share of the largest figure
LINES_A_STYLE = 10  # colours of matplotlib's cycle
LARGEST_BUBBLE = 3000  # points^2


def plot_table(measured: dict[str, Any], target: Path) -> bool:
    """Learning curves of the rows, where they have points enough, and for each column
    that has figures to compare the rows' figures.

    Returns:
        whether there was anything to draw; without, there is no image.
    """
    curves, columns = _curves(measured), _compared(measured)
    if not curves and not columns:
        target.unlink(missing_ok=True)
        return False
    rows = _in_the_papers_order(measured, columns)
    lines = -(-len(columns) // PANELS_A_ROW)
    # inches
    of_curves, of_columns = 4.0 * bool(curves), (1.2 + 0.32 * len(rows)) * lines
    width = max(8.0, 1.6 + 3.0 * min(len(columns), PANELS_A_ROW))
    figure = pyplot().figure(
        figsize=(width, 0.7 + of_curves + of_columns), layout="constrained"
    )
    heights = [height for height in (of_curves, of_columns) if height]
    parts = list(
        figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)
    )
    if curves:
        _draw_curves(measured["curve"], curves, parts.pop(0)[0].subplots())
    if columns:
        across = min(len(columns), PANELS_A_ROW)
        grid = parts[0][0].subplots(lines, across, squeeze=False, sharey=True)
        for axes, column in zip(grid.flat, columns, strict=False):
            _draw_column(measured, column, rows, axes)
        for axes in grid.flat[len(columns) :]:
            axes.set_axis_off()
    figure.suptitle(f"{measured['title']}\n{_of_the_runs(measured)}", fontsize="medium")
    save(figure, target)
    return True


def _curves(measured: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Curves of what the columns measure, not of a perplexity beside other figures."""
    kind = measured["curve"].removeprefix("valid_")
    metrics = [
        cell["metric"] or ""
        for row in measured["rows"].values()
        for cell in row.values()
    ]
    if not any(kind in metric for metric in metrics):
        return {}
    return {
        name: curve
        for name, curve in measured["curves"].items()
        if len(curve["updates"]) >= FEWEST_POINTS
    }


def _compared(measured: dict[str, Any]) -> list[str]:
    """Columns whose order says something and that have more than one figure."""
    return [
        column
        for column in measured["agreement"]
        if sum(row[column]["measured"] is not None for row in measured["rows"].values())
        > 1
    ]


def _in_the_papers_order(measured: dict[str, Any], columns: list[str]) -> list[str]:
    """The measured rows, from the bottom up: first those that the paper has not, then
    by its figures in the first column that has some; else as in the table."""
    rows = [
        row
        for row, cells in reversed(measured["rows"].items())
        if any(cells[column]["measured"] is not None for column in columns)
    ]
    for column in columns:
        paper = {row: measured["rows"][row][column]["paper"] for row in rows}
        if any(figure is not None for figure in paper.values()):
            return sorted(
                rows, key=lambda row: (paper[row] is not None, paper[row] or 0)
            )
    return rows


def _of_the_runs(measured: dict[str, Any]) -> str:
    """The preset and what the runs were, in a line."""
    updates = updates_of(measured)
    parts = [f"preset {measured['preset']}", updates and f"{updates} updates"]
    parts.append("" if measured["paper_sizes"] else "not the paper's size")
    return ", ".join(filter(None, parts))


def _draw_curves(key: str, curves: dict[str, dict[str, list[float]]], axes) -> None:
    for place, (name, curve) in enumerate(curves.items()):
        style = "-" if place < LINES_A_STYLE else "--"
        axes.plot(curve["updates"], curve[key], style, marker=".", label=name)
    scale = "linear" if key == "valid_accuracy" else "log"
    axes.set(xlabel="update", ylabel=CURVES.get(key, key), yscale=scale)
    if scale == "log":
        plain_log_ticks(axes.yaxis)
    axes.set_title("Learning curves", fontsize="medium")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))


def _draw_column(measured: dict[str, Any], column: str, rows: list[str], axes) -> None:
    """One line a row; on the right, what the paper has."""
    cells = [measured["rows"][row][column] for row in rows]
    there = [
        (cell["measured"], place, cell["deviation"] or 0)
        for place, cell in enumerate(cells)
        if cell["measured"] is not None
    ]
    values, places, noise = zip(*there, strict=True)
    axes.errorbar(values, places, xerr=noise, fmt="o", capsize=3)
    for value, place, deviation in there:
        shown = number(value) + deviation_of(value, deviation or None)
        # inside the panel: the layout need not look at it
        axes.annotate(
            shown,
            (value, place),
            (0, 5),
            textcoords="offset points",
            ha="center",
            fontsize="x-small",
            in_layout=False,
        )
    axes.set_yticks(range(len(rows)), rows)
    axes.set(ylim=(-0.6, len(rows) - 0.2))
    if min(values) > 0 and max(values) > WIDEST_LINEAR * min(values):
        axes.set_xscale("log")
    # room for the figures at the points; and what differs little is to look so
    axes.margins(x=0.22)
    low, high = axes.get_xlim()
    missing = LEAST_SPAN * max(map(abs, values)) - (high - low)
    if missing > 0:
        axes.set_xlim(low - missing / 2, high + missing / 2)
    if axes.get_xscale() == "log":
        plain_log_ticks(axes.xaxis)
    axes.set_xlabel(_unit(measured, column), fontsize="small")
    axes.set_title(column, fontsize="medium")
    axes.grid(alpha=0.3)
    axes.tick_params(labelsize="small")
    if any(cell["paper"] is not None for cell in cells):
        beside = axes.twinx()
        beside.set_ylim(axes.get_ylim())
        papers = [
            "-" if cell["paper_dash"] else number(cell["paper"]) for cell in cells
        ]
        beside.set_yticks(range(len(rows)), papers)
        beside.tick_params(labelsize="x-small", labelcolor="0.4", length=0)
        beside.set_ylabel("in the paper", fontsize="x-small", color="0.4")


def _unit(measured: dict[str, Any], column: str) -> str:
    """What a column's figures are, for an axis; empty where that is not known."""
    metrics = (cells[column]["metric"] for cells in measured["rows"].values())
    metric = next(filter(None, metrics), "")
    if SPEED.fullmatch(metric):
        return "steps a second"
    return METRICS.get(OF_A_PART.sub("", metric), "")


def plot_bubbles(
    measured: dict[str, Any], columns: dict[str, str], target: Path
) -> bool:
    """A circle a row: two columns are its place, a third is its area.

    Returns:
        whether there was a row to draw.
    """
    points = {
        row: [cells[columns[axis]]["measured"] for axis in ("x", "y", "size")]
        for row, cells in measured["rows"].items()
    }
    points = {row: each for row, each in points.items() if None not in each}
    if not points:
        target.unlink(missing_ok=True)
        return False
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    largest = max(size for _, _, size in points.values())
    for place, (row, (x, y, size)) in enumerate(points.items()):
        area = LARGEST_BUBBLE * size / largest
        axes.scatter(x, y, area, color=f"C{place % LINES_A_STYLE}", alpha=0.5)
        axes.annotate(row, (x, y), ha="center", va="center", fontsize="small")
    axes.set(xlabel=columns["x"], ylabel=columns["y"])
    axes.set_title(f"{measured['title']} (area: {columns['size']})")
    axes.margins(0.15)
    axes.grid(alpha=0.3)
    save(figure, target)
    return True


def plot_columns(measured: dict[str, Any], axis: str, target: Path) -> bool:
    """The rows as lines over their columns, whose names are numbers.

    Args:
        measured: what ``results.measure`` returns, with the report's own entries.
        axis: what the numbers are of.
        target: the image.

    Returns:
        whether a row has two figures; without, there is no image.
    """
    lines = {}
    for row, cells in measured["rows"].items():
        points = [
            (int(column), cell["measured"], cell["deviation"] or 0)
            for column, cell in cells.items()
            if cell["measured"] is not None
        ]
        if len(points) > 1:
            lines[row] = sorted(points)
    if not lines:
        target.unlink(missing_ok=True)
        return False
    figure, axes = pyplot().subplots(figsize=(8, 4.5), layout="constrained")
    for place, (row, points) in enumerate(lines.items()):
        numbers, values, noise = zip(*points, strict=True)
        style = "o-" if place < LINES_A_STYLE else "s--"
        axes.errorbar(numbers, values, yerr=noise, fmt=style, capsize=3, label=row)
    columns = [int(column) for column in measured["columns"]]
    axes.set_xscale("log", base=2)
    axes.set_xticks(columns, map(str, columns))
    axes.set(xlabel=axis, ylabel=_unit(measured, measured["columns"][0]))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(f"{measured['title']}\n{_of_the_runs(measured)}", fontsize="medium")
    save(figure, target)
    return True


def plot_sweep(measured: dict[str, Any], target: Path) -> bool:
    """For each ranked column the figure of every value of the sweep, a line a row.

    Returns:
        whether a row has two values to compare; without, there is no image.
    """
    plt = pyplot()
    columns = [
        column
        for column in measured["agreement"]
        if any(_swept_twice(row[column]) for row in measured["rows"].values())
    ]
    if not columns:
        target.unlink(missing_ok=True)
        return False
    axis = _axis_of_sweep(measured, columns)
    figure, panels = plt.subplots(
        1,
        len(columns),
        figsize=(max(8, 3 * len(columns)), 4),
        layout="constrained",
        squeeze=False,
    )
    for axes, column in zip(panels[0], columns, strict=True):
        tried: set = set()
        for place, (row, cells) in enumerate(measured["rows"].items()):
            points = [
                (
                    plain(each["values"][axis]) if axis else _swept(each),
                    each["measured"],
                    each["deviation"] or 0,
                )
                for each in cells[column].get("sweep", [])
                if each["measured"] is not None
            ]
            if points:
                labels, values, noise = zip(
                    *(sorted(points) if axis else points), strict=True
                )
                tried.update(labels)
                style = "o-" if place < LINES_A_STYLE else "s--"
                axes.errorbar(
                    labels, values, yerr=noise, fmt=style, capsize=3, label=row
                )
        axes.set(
            title=column,
            xlabel=axis or ", ".join(measured["sweep"]),
            ylabel=_unit(measured, column),
        )
        axes.grid(alpha=0.3)
        if axis:
            axes.set_xscale("log")
            ticks = sorted(tried)
            axes.set_xticks(ticks, [f"{value:g}" for value in ticks], rotation=45)
            axes.minorticks_off()
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize="small", loc="outside right center")
    figure.suptitle(f"{measured['title']}\n{_of_the_runs(measured)}", fontsize="medium")
    save(figure, target)
    return True


def _axis_of_sweep(measured: dict[str, Any], columns: list[str]) -> str | None:
    """The key of the sweep that alone varies, if its values are numbers above 0."""
    tried = [
        each["values"]
        for row in measured["rows"].values()
        for column in columns
        for each in row[column].get("sweep", [])
        if each["measured"] is not None
    ]
    varied = [
        key for key in measured["sweep"] if len({str(each[key]) for each in tried}) > 1
    ]
    if len(varied) != 1:
        return None
    values = [plain(each[varied[0]]) for each in tried]
    return varied[0] if all(map(ABOVE_0.fits, values)) else None


def _swept_twice(cell: dict[str, Any]) -> bool:
    there = [each["measured"] is not None for each in cell.get("sweep", [])]
    return sum(there) > 1


def _swept(each: dict[str, Any]) -> str:
    """The values of a sweep as a label."""
    values = map(plain, each["values"].values())
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
