"""Numbers and tables as Markdown."""

from __future__ import annotations

from pandas import DataFrame


def table(frame: DataFrame) -> str:
    """A table whose first column, the index, is text and whose others are numbers."""
    header = [frame.index.name or "", *frame.columns]
    ruler = [":--", *["--:"] * len(frame.columns)]
    rows = (header, ruler, *frame.itertuples(name=None))
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def plain(value: float) -> str:
    """Three digits that count, "1230" and not "1.23e+03"."""
    number = f"{value:.3g}"
    return f"{float(number):.0f}" if "e+" in number else number


def thousands(value: float) -> str:
    """Three digits that count of a large number, e.g. "81,200"."""
    return f"{float(f'{value:.3g}'):,.0f}"


def size(count: float) -> str:
    """Bytes, in the largest fitting unit."""
    units = ["B", "KiB", "MiB", "GiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{plain(count)} {units[0]}"
