"""Pivots of measured rows: quartiles, gaps, ratios, growth."""

import numpy
import pytest

from benchmarks.report import tables
from benchmarks.report.tables import (
    MEMORY,
    MILLISECONDS,
    Axis,
    Ratios,
    Table,
    by_name,
    rows_of,
)

LENGTH = Axis("length", "n = {}", "length")


def row(name, length, seconds=None, **more):
    row = {"contestant": name, "length": length, **more}
    return row | ({"skipped": "why"} if seconds is None else {"seconds": seconds})


def rows(*given):
    return rows_of({"measurements": list(given)})


def lines(shown):
    """The lines of the only table."""
    found = [line for line in shown.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in found if ":--" not in line]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 30])
def test_median_and_quartiles(count):
    samples = numpy.random.default_rng(0).random(count).tolist()
    found = rows(row("a", 1, samples)).iloc[0]
    expected = numpy.quantile(samples, [0.5, 0.25, 0.75])
    values = [found[f"time{end}"] for end in ("", "_lower", "_upper")]
    numpy.testing.assert_allclose(values, expected)


def test_a_table_has_gaps_and_the_order_of_measurement():
    some = rows(
        row("slow", 64, [4e-3, 5e-3, 6e-3]),
        row("never", 64),
        row("fast", 64, [1e-3]),
        row("slow", 8),
        row("fast", 8, [2e-3]),
        row("slow", 128),
        row("fast", 128),
    )
    shown = Table("T", some, "time", MILLISECONDS, LENGTH).markdown()
    assert "T" in shown.splitlines()[0] and "milliseconds" in shown.splitlines()[0]
    assert lines(shown) == [
        ["n = 8", "n = 64", "n = 128"],
        ["slow", "-", "5 (4.5-5.5)", "-"],
        ["fast", "2 (2-2)", "1 (1-1)", "-"],
    ]
    assert {name: {**line} for name, line in by_name(some, LENGTH).items()} == {
        "slow": {64: 5e-3},
        "fast": {8: 2e-3, 64: 1e-3},
    }


def test_growth():
    some = rows(*(row("a", n, [1e-9 * n**2]) for n in (1, 2, 4, 8)), row("b", 1, [1.0]))
    shown = Table("", some, "time", MILLISECONDS, LENGTH, letter="n").markdown()
    assert [line[-1] for line in lines(shown)] == ["growth", "n^2.00", "-"]


def test_bytes_have_no_quartiles():
    some = rows(row("a", 1, [1.0], peak_bytes=3 * 2**19), row("a", 2, [1.0]))
    shown = Table("", some, "peak_bytes", MEMORY, LENGTH).markdown()
    assert lines(shown)[1] == ["a", "1.5 MiB", "-"]


def test_ratios():
    some = rows(
        row("ours", 1, [3.0], peak_bytes=2),
        row("peer", 1, [2.0], peak_bytes=4),
        row("ours", 2, [3.0], peak_bytes=2),
        row("peer", 2),
    )
    ratios = Ratios("", some, ["time", "peak_bytes"], LENGTH, "peer")
    assert lines(ratios.markdown())[1:] == [["ours", "1.5x, 0.5x", "-"]]
    assert ratios._replace(peer="nobody").markdown() == ""


def test_what_is_drawn_only_is_not_listed():
    table = Table("", rows(row("a", 1, [1.0])), "time", tables.MILLISECONDS, LENGTH)
    assert table.markdown()
    hidden = Table(*(getattr(table, f) for f in "title rows value unit axis".split()),
                   listed=False)  # fmt: skip
    assert hidden.markdown() == ""
