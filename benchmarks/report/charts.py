"""The one plot of all benchmarks: log-log lines over the length or another size."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_transnormer.analysis.figures import plain_log_ticks, pyplot

from .tables import Table, pivot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "os^Dv"
# a colour returns after ten lines, in another style
STYLES = ("-", "--", ":")
# more lengths than this would write their labels over one another
MOST_TICKS = 6


def draw(tables: list[Table], caption: str, path: Path) -> None:
    """Draw tables as panels in rows of two, with one legend, as a PNG.

    Lines of one name look the same in all panels. The caption stands below them.
    """
    count = max(1, -(-len(tables) // 2))
    plt = pyplot()
    figure, grid = plt.subplots(count, 2, figsize=(10, 1.2 + 3.6 * count), dpi=110)
    names = list(dict.fromkeys(n for each in tables for n in each.spreads()[0].index))
    handles = {}
    for axes, panel in zip(grid.flat, tables, strict=False):
        handles |= _panel(axes, panel, names)
    for axes in grid.flat[len(tables) :]:
        axes.set_axis_off()
    # inches for the caption's lines and the legend's rows, below the panels
    caption = "\n".join(textwrap.fill(line, 130) for line in caption.splitlines())
    for_caption = 0.1 + 0.16 * len(caption.splitlines())
    for_legend = 0.22 * -(-len(names) // 2)
    height = figure.get_figheight()
    figure.legend(
        [handles[name] for name in names],
        names,
        loc="lower center",
        ncols=2,
        frameon=False,
        bbox_to_anchor=(0.5, for_caption / height),
    )
    figure.text(0.5, 0.06 / height, caption, ha="center", fontsize=8, color="0.35")
    figure.tight_layout(rect=(0, (for_caption + for_legend + 0.15) / height, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def _panel(axes: Axes, panel: Table, names: list[str]) -> dict[str, object]:
    """Lines with their quartiles and fits; name -> line, for the legend."""
    medians, lower, upper = (each / panel.unit.divisor for each in panel.spreads())
    handles = {}
    for name, line in medians.iterrows():
        index, line = names.index(name), line.dropna()
        style = {"color": f"C{index}", "linestyle": STYLES[index // 10 % len(STYLES)]}
        marker = MARKERS[index % len(MARKERS)]
        (handles[name],) = axes.loglog(
            line.index, line, **style, marker=marker, markersize=4, linewidth=1.4
        )
        quartiles = (each.loc[name, line.index] for each in (lower, upper))
        axes.fill_between(
            line.index, *quartiles, color=style["color"], alpha=0.2, linewidth=0
        )
    if panel.fitted is not None:
        fits = pivot(panel.rows, panel.index, panel.axis, panel.fitted)
        for name, line in (fits / panel.unit.divisor).iterrows():
            color = f"C{names.index(name)}"
            axes.plot(line.index, line, color=color, linestyle="--", linewidth=1)
    ticks = list(medians.dropna(axis=1, how="all").columns)
    ticks = ticks[:: -(-len(ticks) // MOST_TICKS) or 1]
    axes.set_xticks(ticks, [str(n) for n in ticks])
    plain_log_ticks(axes.yaxis)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.set_title(textwrap.fill(panel.title, 44), fontsize=10)
    axes.set(xlabel=panel.axis.label, ylabel=panel.unit.axis)
    return handles
