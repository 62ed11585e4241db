"""A measured table as a picture."""

from pathlib import Path
from typing import Any

from ..analysis.figures import pyplot, save

CURVES = {
    "valid_ppl": "validation perplexity",
    "valid_loss": "validation loss (bits a symbol)",
}
LINES_A_STYLE = 10  # colours of matplotlib's cycle


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
    left.set(xlabel="update", ylabel=CURVES.get(key, key), yscale="log")
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
