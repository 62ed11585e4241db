"""A measured table as a picture."""

from pathlib import Path
from typing import Any

from ..analysis.figures import pyplot, save

CURVES = {
    "valid_ppl": "validation perplexity",
    "valid_loss": "validation loss (bits a symbol)",
    "valid_accuracy": "validation accuracy (%)",
}
LINES_A_STYLE = 10  # colours of matplotlib's cycle
LARGEST_BUBBLE = 3000  # points^2


def plot_table(measured: dict[str, Any], target: Path) -> None:
    """Learning curves of all rows, and measured figures against the paper's."""
    plt = pyplot()
    key = measured["curve"]
    # without columns to compare there are curves only
    count = 2 if measured["agreement"] else 1
    figure, axes_of = plt.subplots(
        1, count, figsize=(6.5 * count, 5), squeeze=False, layout="constrained"
    )
    left = axes_of[0, 0]
    for number, (name, curve) in enumerate(measured["curves"].items()):
        style = "-" if number < LINES_A_STYLE else "--"
        if curve["updates"]:
            left.plot(curve["updates"], curve[key], style, marker=".", label=name)
    scale = "linear" if key == "valid_accuracy" else "log"
    left.set(xlabel="update", ylabel=CURVES.get(key, key), yscale=scale)
    left.set_title("Learning curves")
    for right in axes_of[0, 1:]:
        _compare(measured, right)
    for axes in axes_of[0]:
        axes.grid(alpha=0.3, which="both")
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize="small")
    figure.suptitle(measured["title"])
    save(figure, target)


def _compare(measured: dict[str, Any], axes) -> None:
    """One line a row, in the paper's order: measured points rise as they should."""
    columns = list(measured["agreement"])
    paper = {
        row: [columns_of_row[column]["paper"] for column in columns]
        for row, columns_of_row in measured["rows"].items()
    }
    rows = sorted(
        paper, key=lambda row: [(figure is None, figure or 0) for figure in paper[row]]
    )
    labels = [
        f"{row} ({', '.join('-' if p is None else f'{p:g}' for p in paper[row])})"
        for row in rows
    ]
    for column in columns:
        points = [
            (cell["measured"], place, cell["deviation"] or 0)
            for place, row in enumerate(rows)
            if (cell := measured["rows"][row][column])["measured"] is not None
        ]
        if points:
            values, places, noise = zip(*points, strict=True)
            axes.errorbar(values, places, xerr=noise, fmt="o", capsize=3, label=column)
    axes.set_yticks(range(len(rows)), labels)
    axes.set(xlabel="measured", ylim=(-0.5, len(rows) - 0.5))
    axes.set_title("Measured, in the paper's order (its figures)")


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
        return False
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    largest = max(size for _, _, size in points.values())
    for number, (row, (x, y, size)) in enumerate(points.items()):
        area = LARGEST_BUBBLE * size / largest
        axes.scatter(x, y, area, color=f"C{number % LINES_A_STYLE}", alpha=0.5)
        axes.annotate(row, (x, y), ha="center", va="center", fontsize="small")
    axes.set(xlabel=columns["x"], ylabel=columns["y"])
    axes.set_title(f"{measured['title']} (area: {columns['size']})")
    axes.margins(0.15)
    axes.grid(alpha=0.3)
    save(figure, target)
    return True


def plot_sweep(measured: dict[str, Any], target: Path) -> None:
    """For each column the figure of every value of the sweep, a line a row."""
    plt = pyplot()
    columns = [
        column
        for column in measured["columns"]
        if any("sweep" in row[column] for row in measured["rows"].values())
    ]
    figure, panels = plt.subplots(
        1,
        len(columns),
        figsize=(max(5, 3 * len(columns)), 4),
        layout="constrained",
        squeeze=False,
    )
    for axes, column in zip(panels[0], columns, strict=True):
        for place, (row, cells) in enumerate(measured["rows"].items()):
            points = [
                (_swept(each), each["measured"], each["deviation"] or 0)
                for each in cells[column].get("sweep", [])
                if each["measured"] is not None
            ]
            if points:
                labels, values, noise = zip(*points, strict=True)
                style = "o-" if place < LINES_A_STYLE else "s--"
                axes.errorbar(
                    labels, values, yerr=noise, fmt=style, capsize=3, label=row
                )
        axes.set(title=column, xlabel=", ".join(measured["sweep"]))
        axes.grid(alpha=0.3)
    handles, labels = panels[0][0].get_legend_handles_labels()
    if handles:
        panels[0][0].legend(handles, labels, fontsize="small")
    figure.suptitle(measured["title"])
    save(figure, target)


def _swept(each: dict[str, Any]) -> str:
    """The values of a sweep as a label."""
    values = (
        value[0] if isinstance(value, list) and len(value) == 1 else value
        for value in each["values"].values()
    )
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
