"""matplotlib as all pages and analyses use it: without a screen, reproducible files.

``curves`` draws lines over pairs of axes, ``dots`` a line of dots a row, ``pictures``
matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import numpy as np

from ..data.whole_files import make_folder_of, write_whole
from ..outputs import checked_path

# a figure's format -> what would differ from one run to the next in it
UNSET = {".png": {"Software": None}, ".pdf": {"CreationDate": None}}
STYLES = ("-", "--", ":", "-.")
ARROWS = {"": "", "lower": "↓", "higher": "↑"}
# T2 stands out, from lines in grey where there are more than these
FOREGROUND, MOST_COLOURS = "#c1272d", 6
DIVERGED = 4.0  # times a line's first value
MOST_TICKS = 12
TEXT_INCHES = 0.16


def _check_image(path: Path, name: str) -> None:
    if path.suffix.lower() not in UNSET:
        allowed = ", ".join(f"*{suffix}" for suffix in UNSET)
        raise ValueError(f"{name} must be one of {allowed}, got {path}")
    make_folder_of(path, name)


# the type of an option: an image to write, whose folder is made
ImageFile = Annotated[Path | None, checked_path("IMAGE", _check_image)]


@dataclass
class Panel:
    """Lines over a pair of axes.

    Attributes:
        lines: label, x, y and what else matplotlib's ``errorbar`` takes. Lines of one
            label have one colour.
        x, y: names of the axes.
        log: the axes that are logarithmic: "x", "y", "xy".
        bottom: of the axis of y, if it is to begin there.
        better: "lower" or "higher"; where lower is better, a line that diverges is cut.
    """

    title: str = ""
    x: str = ""
    y: str = ""
    log: str = ""
    bottom: float | None = None
    better: str = ""
    lines: list[tuple[str, Sequence, Sequence, dict[str, Any]]] = field(
        default_factory=list
    )

    def add(self, label: str, x: Sequence, y: Sequence, **look: Any) -> None:
        """Add a line."""
        self.lines.append((label, x, y, look))


def curves(
    panels: Sequence[Panel], target: Path, columns: int = 3, title: str = ""
) -> None:
    """Draw panels side by side; one alone names its lines at their ends."""
    rows = -(-len(panels) // columns)
    columns = -(-len(panels) // rows)
    size = (4.6 * columns, 3.6 * rows + 0.4) if len(panels) > 1 else (9, 4.5)
    figure, grid = _figure(size, rows, columns)
    lines = (line for panel in panels for line in panel.lines)
    looks = _looks(label for label, *_, look in lines if "color" not in look)
    named: dict[str, Any] = {}
    for panel, axes in zip(panels, grid.flat, strict=False):
        _draw(panel, axes, looks, named)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    named.pop("", None)
    if len(panels) == 1:
        _name_ends(grid[0, 0], named, TEXT_INCHES / (0.8 * size[1]))
    elif named:
        place = {"loc": "outside lower center", "fontsize": "small"}
        columns = min(len(named), 2 * columns)
        figure.legend(named.values(), named.keys(), ncols=columns, **place)
    figure.suptitle(title, fontsize="medium")
    save(figure, target)


def _looks(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """How lines of each label look that have no colour of their own."""
    found: dict[str, dict[str, Any]] = {}
    labels = dict.fromkeys(each for each in labels if each)
    is_grey = any(map(_stands_out, labels)) and len(labels) > MOST_COLOURS
    for number, label in enumerate(labels):
        style = STYLES[(number if is_grey else number // 10) % len(STYLES)]
        colour = "0.5" if is_grey else f"C{number % 10}"
        found[label] = {"color": colour, "linestyle": style}
        if _stands_out(label):
            found[label] = {"color": FOREGROUND, "linewidth": 2.5, "zorder": 3}
    return found


def _stands_out(label: str) -> bool:
    return label.endswith("T2")


def _draw(panel: Panel, axes: Any, looks: Mapping, named: dict[str, Any]) -> None:
    """Draw a panel; ``named`` gets the first line of each label."""
    values = [np.asarray(y, float) for _, _, y, _ in panel.lines]
    cut = [_diverged(panel, y) for y in values]
    kept = np.concatenate([y[~each] for y, each in zip(values, cut, strict=True)])
    top = 1.25 * kept.max(initial=0)
    for (label, x, _, look), y, beyond in zip(panel.lines, values, cut, strict=True):
        look = {"linewidth": 1.2} | looks.get(label, {}) | look
        line, *_ = axes.errorbar(x, np.where(beyond, top, y), **look)
        named.setdefault(label, line)
        for at in np.flatnonzero(beyond)[:1]:
            text = f"diverged: {y[at]:,.3g}" if np.isfinite(y[at]) else "diverged"
            options = {"color": line.get_color(), "fontsize": "small"}
            axes.plot(x[at], top, "x", color=line.get_color(), markersize=8)
            axes.text(x[at], top, f"{text}   ", ha="right", va="bottom", **options)
    for name in panel.log:
        axes.set(**{f"{name}scale": "log"})
        _plain_log_ticks(axes.xaxis if name == "x" else axes.yaxis)
    ticks = sorted({x for _, xs, _, _ in panel.lines for x in xs})
    if "x" in panel.log and len(ticks) <= MOST_TICKS:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=30)
    if panel.bottom is not None:
        axes.axhline(panel.bottom, alpha=0)  # so that the top is above all lines
        axes.set_ylim(bottom=panel.bottom)
    unit = f"\n{panel.better} is better {ARROWS[panel.better]}" * bool(panel.better)
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y + unit)
    axes.grid(alpha=0.3)


def _diverged(panel: Panel, y: np.ndarray) -> np.ndarray:
    """Which values would flatten all others: far worse than the line's first."""
    if panel.better != "lower":
        return np.zeros(len(y), bool)
    return ~np.isfinite(y) | (y > DIVERGED * y[:1])


def _name_ends(axes: Any, lines: Mapping[str, Any], height: float) -> None:
    """Names at the right of the axes, at the ends of their lines, apart by a height."""
    axes.autoscale_view()
    to_axes = axes.transData + axes.transAxes.inverted()
    found = []
    for label, line in lines.items():
        points = line.get_xydata()
        end = points[np.isfinite(points).all(1)][-1:]
        found += [(*to_axes.transform(each).clip(0, 1), label, each) for each in end]
    found.sort(key=lambda each: each[1])
    # each at least a height above the one below it, and none above the axes
    steps = height * np.arange(len(found))
    heights = np.maximum.accumulate([each[1] for each in found] - steps) + steps
    heights = np.minimum(heights, 1 - steps[::-1])
    for (_, _, label, end), place in zip(found, heights, strict=True):
        colour = lines[label].get_color()
        arrow = {"color": colour, "linewidth": 0.6, "arrowstyle": "-"}
        arrow |= {"relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 1}
        look = {"color": colour, "fontsize": "small", "va": "center"}
        look["fontweight"] = "bold" if _stands_out(label) else "normal"
        look |= {"textcoords": "axes fraction", "annotation_clip": False}
        axes.annotate(label, end, (1.04, place), arrowprops=arrow, **look)


@dataclass
class Row:
    """A row of dots; one without a kind is a heading.

    Attributes:
        values: of the seeds.
        printed: the paper's.
    """

    name: str
    kind: str = ""
    values: Sequence[float] = ()
    printed: float | None = None


def dots(
    rows: Sequence[Row],
    colours: Mapping[str, str],
    target: Path,
    *,
    limits: tuple[float, float],
    x: str = "",
    title: str = "",
) -> None:
    """Draw a line a row: small dots for seeds, a large one for their mean, the paper's.

    The axis is logarithmic. A value beyond it is an arrow at its edge, with the figure.
    ``colours`` has a colour a kind, in the order of the legend.
    """
    low, high = limits
    size = (8, 1.6 + 0.23 * len(rows))
    figure, ((axes,),) = _figure(size)
    axes.axvspan(low, 1, color="0.95", zorder=0)
    axes.axvline(1, color="0.3", linewidth=0.8, zorder=1)
    hollow: dict[str, Any] = {"color": "black", "fillstyle": "none", "markersize": 6}
    for place, row in enumerate(rows):
        colour = colours.get(row.kind)
        full = {"color": colour, "markeredgecolor": "white", "markersize": 7}
        small = {"color": colour, "markersize": 4}
        marks = [(mean(row.values), "o", full)] if row.values else []
        marks += [(value, ".", small) for value in row.values]
        marks += [(row.printed, "D", hollow)] if row.printed is not None else []
        for value, marker, look in marks:
            edge = min(max(value, low), high)
            marker = marker if edge == value else ">" if value > high else "<"
            axes.plot(edge, place, marker, clip_on=False, **look)
            if edge != value and look is not small:
                said = f"{value:.3g}  " if value < low else f"  {value:.3g}"
                side = "right" if value < low else "left"
                axes.text(edge, place, said, ha=side, va="center", fontsize="x-small")
    shown = axes.set_yticks(
        range(len(rows)), [row.name for row in rows], fontsize="small"
    )
    for tick, row in zip(shown, rows, strict=True):
        tick.label1.set_fontweight("normal" if row.kind else "bold")
    axes.set(ylim=(len(rows) - 0.3, -0.7), xscale="log", xlim=limits)
    _plain_log_ticks(axes.xaxis)
    axes.set_xlabel(x, fontsize="small")
    axes.grid(axis="x", alpha=0.3)
    drawn = {row.kind for row in rows if row.values}
    for kind in [each for each in colours if each in drawn]:
        axes.plot([], [], "o", color=colours[kind], label=kind)
    axes.plot([], [], ".", color="0.55", label="each seed")
    axes.plot([], [], "D", label="the paper", **hollow)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle(title, fontsize="medium")
    save(figure, target)


def pictures(
    rows: Mapping[str, Sequence[tuple[str, Any]]],
    target: Path,
    inch: float = 2.4,
    scale: str = "",
) -> None:
    """Draw rows of pictures.

    Args:
        rows: name -> titles and what ``imshow`` draws: (H, W) from 0 to 1, or colours
            (H, W, 3).
        target: image to write.
        inch: height of a picture.
        scale: what a bar says that 0 to 1 are; "": no bar.
    """
    columns = max(map(len, rows.values()))
    height, width = next(iter(rows.values()))[0][1].shape[:2]
    size = (1 + inch * width / height * columns, inch * len(rows))
    figure, grid = _figure(size, len(rows), columns)
    for line, (name, images) in zip(grid, rows.items(), strict=True):
        line[0].set_ylabel(name, fontsize=9, rotation=0, ha="right", va="center")
        for axes, (title, image) in zip(line, images, strict=True):
            drawn = axes.imshow(image, cmap="magma", vmin=0, vmax=1)
            axes.set_title(title, fontsize=8)
            axes.set(xticks=[], yticks=[])
    if scale:
        figure.colorbar(drawn, ax=grid, label=scale, shrink=0.6)
    save(figure, target)


def _figure(size: tuple[float, float], rows: int = 1, columns: int = 1) -> Any:
    """A figure of so many inches, without a screen, and its axes (rows, columns)."""
    from matplotlib.figure import Figure  # not needed by a command's help

    figure = Figure(size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure, target: Path) -> None:
    """Write a figure as an image, whole or not at all; folders are made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    kind = target.suffix.lower()
    options = {"format": kind[1:], "dpi": 120, "metadata": UNSET[kind]}
    write_whole(target, lambda file: figure.savefig(file, **options))


def _plain_log_ticks(axis) -> None:
    """Ticks with plain figures for a logarithmic axis, of matplotlib's.

    A log scale labels whole powers of ten only, which a short one has not.
    """
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_locator(ticker.MaxNLocator(6))
    elif high < 10**6 * low:
        every = (1,) if high > 1000 * low else (1, 2, 5)
        axis.set_major_locator(ticker.LogLocator(subs=every))
    else:
        return
    axis.set_major_formatter(
        lambda value, _: f"{value:g}" if value < 10_000 else f"{value:,.0f}"
    )
    axis.set_minor_locator(ticker.NullLocator())
