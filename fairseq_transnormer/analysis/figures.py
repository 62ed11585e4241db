"""matplotlib as all analyses use it: without a screen, reproducible files."""

import argparse
from pathlib import Path

from ..data.whole_files import write_whole
from ..cli import output_file

# a figure's format -> what would differ from one run to the next in it
UNSET = {".png": {"Software": None}, ".pdf": {"CreationDate": None}}


def image_file(text: str) -> Path:
    """An argparse type: an image to write, whose folder is made."""
    if Path(text).suffix.lower() not in UNSET:
        allowed = ", ".join(f"*{suffix}" for suffix in UNSET)
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: names {allowed}")
    return output_file(text)


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


def named_paths(arguments: list[str]) -> dict[str, Path]:
    """Name -> path of each "NAME=PATH", or of a "PATH", which then is its own name.

    A path that there is may have "=" in it.

    Raises:
        ValueError: two have one name.
    """
    paths = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or Path(argument).exists():
            name, path = argument, argument
        if name in paths:
            raise ValueError(f"{name!r} names two files; allowed: NAME=PATH, each once")
        paths[name] = Path(path)
    return paths
