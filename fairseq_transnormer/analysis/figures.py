"""matplotlib as all analyses use it: without a screen, reproducible files.

``curves`` draws lines over one or several pairs of axes, ``pictures`` matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ..data.whole_files import make_folder_of, write_whole
from ..outputs import checked_path

# a figure's format -> what would differ from one run to the next in it
UNSET = {".png": {"Software": None}, ".pdf": {"CreationDate": None}}
COLOURS, STYLES = 10, ("-", "--", "-.")


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
        lines: label, x, y and what else matplotlib's ``plot`` takes.
        x, y: names of the axes.
        log: the axes that are logarithmic: "x", "y", "xy".
        limits: of y.
    """

    title: str = ""
    x: str = ""
    y: str = ""
    log: str = ""
    limits: tuple[float | None, float | None] = (None, None)
    lines: list[tuple[str | None, Sequence, Sequence, dict[str, Any]]] = field(
        default_factory=list
    )

    def add(self, label: str | None, x: Sequence, y: Sequence, **look: Any) -> None:
        """Add a line."""
        self.lines.append((label, x, y, look))


def look_of(number: int) -> dict[str, Any]:
    """Colour and style of the run ``number``: 30 are told apart."""
    style = STYLES[number // COLOURS % len(STYLES)]
    return {"color": f"C{number % COLOURS}", "linestyle": style}


def curves(panels: Sequence[Panel], target: Path, columns: int = 3) -> None:
    """Draw panels side by side, each with a legend of its labels."""
    columns = min(len(panels), columns)
    rows = -(-len(panels) // columns)
    size = (4.6 * columns, 3.6 * rows)
    figure, grid = pyplot().subplots(
        rows, columns, figsize=size, squeeze=False, layout="constrained"
    )
    for panel, axes in zip(panels, grid.flat, strict=False):
        for label, x, y, look in panel.lines:
            axes.plot(x, y, **{"label": label, "linewidth": 1.2} | look)
        for name in panel.log:
            axes.set(**{f"{name}scale": "log"})
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, ylim=panel.limits)
        axes.grid(alpha=0.3)
        if any(label for label, *_ in panel.lines):
            axes.legend(fontsize=7)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    save(figure, target)


def pictures(
    rows: Mapping[str, Sequence[tuple[str, Any]]], target: Path, inch: float = 2.4
) -> None:
    """Draw rows of pictures.

    Args:
        rows: name -> titles and what ``imshow`` draws: (H, W) from 0 to 1, or colours
            (H, W, 3).
        target: image to write.
        inch: height of a picture.
    """
    columns = max(map(len, rows.values()))
    height, width = next(iter(rows.values()))[0][1].shape[:2]
    size = (1 + inch * width / height * columns, inch * len(rows))
    figure, grid = pyplot().subplots(
        len(rows), columns, figsize=size, squeeze=False, layout="constrained"
    )
    for line, (name, images) in zip(grid, rows.items(), strict=True):
        line[0].set_ylabel(name, fontsize=9, rotation=0, ha="right", va="center")
        for axes, (title, image) in zip(line, images, strict=True):
            axes.imshow(image, cmap="magma", vmin=0, vmax=1)
            axes.set_title(title, fontsize=8)
            axes.set(xticks=[], yticks=[])
    save(figure, target)


def pyplot():
    """``matplotlib.pyplot``, imported when a figure is asked for."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure, target: Path) -> None:
    """Write a figure as an image, whole or not at all; folders are made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    kind = target.suffix.lower()
    options = {"format": kind[1:], "dpi": 120, "metadata": UNSET[kind]}
    write_whole(target, lambda file: figure.savefig(file, **options))
    pyplot().close(figure)


def plain_log_ticks(axis) -> None:
    """Ticks with plain figures for a logarithmic axis, of matplotlib's.

    A log scale labels whole powers of ten only, which a short one has not.
    """
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_locator(ticker.MaxNLocator(6))
    else:
        every = (1,) if high > 1000 * low else (1, 2, 5)
        axis.set_major_locator(ticker.LogLocator(subs=every))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _plain(value)))
    axis.set_minor_locator(ticker.NullLocator())


def _plain(value: float) -> str:
    return f"{value:g}" if value < 10_000 else f"{value:,.0f}"


def named_paths(arguments: Iterable[str]) -> dict[str, Path]:
    """Name -> path of each "NAME=PATH", or of a "PATH", which then is its own name.

    A path that there is may have "=" in it.

    Raises:
        ValueError: two have one name, or there is none.
    """
    paths: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or Path(argument).exists():
            name, path = argument, argument
        if name in paths:
            raise ValueError(f"{name!r} names two files; give each a NAME=PATH")
        paths[name] = Path(path)
    if not paths:
        raise ValueError("a [NAME=]PATH is needed")
    return paths
