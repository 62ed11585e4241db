"""Numbers and tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from .timing import Spread


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    ruler = [":--", *["--:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ruler, *rows))


def milliseconds(spread: Spread) -> str:
    """Median and quartiles, e.g. "1.23 (1.20-1.31)"."""
    median, lower, upper = (plain(1e3 * x) for x in spread[:3])
    return f"{median} ({lower}-{upper})"


def rate(spread: Spread) -> str:
    """Median and quartiles of a large number, e.g. "81,200 (80,100-83,000)"."""
    median, lower, upper = (f"{float(f'{x:.3g}'):,.0f}" for x in spread[:3])
    return f"{median} ({lower}-{upper})"


def size(count: float) -> str:
    """Bytes, in the largest fitting unit."""
    units = ["B", "KiB", "MiB", "GiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{plain(count)} {units[0]}"


def ratio(ours: float, peer: float) -> str:
    """How many times the peer's number is ours, e.g. "3.2x"."""
    return f"{plain(peer / ours)}x"


def plain(value: float) -> str:
    """Three digits that count, "1230" and not "1.23e+03"."""
    number = f"{value:.3g}"
    return f"{float(number):.0f}" if "e+" in number else number
