"""Log-log line charts over the length or another size."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend must be chosen first)
from matplotlib.ticker import MaxNLocator, ScalarFormatter  # noqa: E402

from .timing import Spread  # noqa: E402

MARKERS = "os^Dv"
# a colour returns after ten lines, in another style
STYLES = ("-", "--", ":")
# what a value, in seconds, bytes or as it is, is divided by
UNITS = {
    "milliseconds": 1e-3,
    "MiB": 2**20,
    "perplexity": 1,
    "bits a token": 1,
    "tokens a second": 1,
    "steps a second": 1,
    "images a second": 1,
}
# more lengths than this would write their labels over one another
MOST_TICKS = 6


class Panel(NamedTuple):
    """One chart: lines of name -> length -> value; a Spread is drawn with quartiles.

    unit: name of the unit of the y axis, one of ``UNITS``.
    x_label: of this panel, where it is not that of the chart.
    fits: name of a line -> size -> fitted value, drawn dashed in the line's colour.
    """

    title: str
    unit: str
    lines: Mapping[str, Mapping[int, Spread | float]]
    x_label: str | None = None
    fits: Mapping[str, Mapping[int, float]] = {}


def draw(panels: list[Panel], x_label: str, caption: str, path: Path) -> None:
    """Draw the panels in rows of two, with one legend, as a PNG.

    Lines of one name look the same in all panels. The caption stands below them.
    """
    count = -(-len(panels) // 2)
    figure, grid = plt.subplots(count, 2, figsize=(10, 1.2 + 3.6 * count), dpi=110)
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    handles = {}
    for axes, panel in zip(grid.flat, panels, strict=False):
        for name, line in panel.lines.items():
            index = names.index(name)
            lengths = sorted(line)
            spreads = [_spread(line[n], UNITS[panel.unit]) for n in lengths]
            (handles[name],) = axes.loglog(
                lengths,
                [s.median for s in spreads],
                color=f"C{index}",
                marker=MARKERS[index % len(MARKERS)],
                markersize=4,
                linewidth=1.4,
                linestyle=STYLES[index // 10 % len(STYLES)],
            )
            axes.fill_between(
                lengths,
                [s.lower for s in spreads],
                [s.upper for s in spreads],
                color=f"C{index}",
                alpha=0.2,
                linewidth=0,
            )
            fit = sorted(panel.fits.get(name, {}).items())
            axes.plot(
                [n for n, _ in fit],
                [value / UNITS[panel.unit] for _, value in fit],
                color=f"C{index}",
                linestyle="--",
                linewidth=1,
            )
        ticks = sorted({n for line in panel.lines.values() for n in line})
        ticks = ticks[:: -(-len(ticks) // MOST_TICKS) or 1]
        axes.set_xticks(ticks, [str(n) for n in ticks])
        low, high = axes.get_ylim()
        if high < 10 * low:
            # a log scale has no labels of its own within one decade
            axes.yaxis.set_major_locator(MaxNLocator(6))
            axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.set_title(textwrap.fill(panel.title, 44), fontsize=10)
        axes.set(xlabel=panel.x_label or x_label, ylabel=panel.unit)
    for axes in grid.flat[len(panels) :]:
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


def _spread(value: Spread | float, unit: float) -> Spread:
    if not isinstance(value, Spread):
        value = Spread(value, value, value, 1)
    return Spread(*(x / unit for x in value[:3]), value.count)
