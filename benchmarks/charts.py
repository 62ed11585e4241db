"""Log-log line charts over the length."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend must be chosen first)

from .timing import Spread  # noqa: E402

MARKERS = "os^Dv"
# what a value, in seconds, bytes or as it is, is divided by
UNITS = {"milliseconds": 1e-3, "MiB": 2**20, "perplexity": 1}


class Panel(NamedTuple):
    """One chart: lines of name -> length -> value; a Spread is drawn with quartiles.

    unit: name of the unit of the y axis, one of ``UNITS``.
    """

    title: str
    unit: str
    lines: Mapping[str, Mapping[int, Spread | float]]


def draw(panels: list[Panel], x_label: str, caption: str, path: Path) -> None:
    """Draw the panels in rows of two, with one legend, as a PNG.

    Lines of one name look the same in all panels.
    """
    count = -(-len(panels) // 2)
    figure, grid = plt.subplots(count, 2, figsize=(10, 0.9 + 3.6 * count), dpi=110)
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
            )
            axes.fill_between(
                lengths,
                [s.lower for s in spreads],
                [s.upper for s in spreads],
                color=f"C{index}",
                alpha=0.2,
                linewidth=0,
            )
        ticks = sorted({n for line in panel.lines.values() for n in line})
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.set(title=panel.title, xlabel=x_label, ylabel=panel.unit)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    figure.legend(
        [handles[name] for name in names],
        names,
        loc="lower center",
        ncols=2 if len(names) == 4 else 3,
        frameon=False,
        bbox_to_anchor=(0.5, 0.03),
    )
    figure.text(0.5, 0.012, caption, ha="center", fontsize=8, color="0.35")
    figure.tight_layout(rect=(0, 0.14 if count == 1 else 0.09, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def _spread(value: Spread | float, unit: float) -> Spread:
    if not isinstance(value, Spread):
        value = Spread(value, value, value, 1)
    return Spread(*(x / unit for x in value[:3]), value.count)
