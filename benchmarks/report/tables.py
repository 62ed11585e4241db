"""Measured rows as data frames, and tables as pivots of them.

A benchmark's section is made of ``Table`` and ``Ratios`` with sentences between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy
import pandas
from pandas import DataFrame, Series

from ..harness.markdown import plain, size, table, thousands
from ..linear_transformers.fits import growth

# what rows of one benchmark or the other have; a run may have skipped them all
VALUES = ("seconds", "peak_bytes", "kept_bytes", "error")


def rows_of(run: dict) -> DataFrame:
    """A row a case, with the median and quartiles of its ``seconds`` as ``time``.

    What was left out has NaN in the place of values.
    """
    rows = DataFrame(run["measurements"])
    missing = [name for name in VALUES if name not in rows]
    rows = rows.assign(**dict.fromkeys(missing, numpy.nan))
    add_quartiles(rows, "time", rows.seconds)
    return rows


def add_quartiles(rows: DataFrame, name: str, samples: Series) -> None:
    """Columns ``name``, the median, ``name_lower`` and ``name_upper``."""
    spreads = [
        numpy.quantile(each, (0.5, 0.25, 0.75))
        if isinstance(each, list)
        else [numpy.nan] * 3
        for each in samples
    ]
    rows[_with_quartiles(name)] = numpy.reshape(spreads, (len(rows), 3))


def _with_quartiles(name: str) -> list[str]:
    return [name, f"{name}_lower", f"{name}_upper"]


class Unit(NamedTuple):
    """How a value is written and drawn.

    Attributes:
        axis: of the chart.
        divisor: of a value, for the chart.
        cell: text of median, lower and upper quartile.
        title: after a table's title.
    """

    axis: str
    divisor: float
    cell: Callable[[float, float, float], str]
    title: str = ""


def _quartiles(axis: str, number: Callable[[float], str], divisor: float = 1) -> Unit:
    def cell(*spread: float) -> str:
        median, lower, upper = (number(x / divisor) for x in spread)
        return f"{median} ({lower}-{upper})"

    return Unit(axis, divisor, cell, f": {axis}**, median (quartiles)")


MILLISECONDS = _quartiles("milliseconds", plain, 1e-3)
TOKENS_A_SECOND = _quartiles("tokens a second", thousands)
IMAGES_A_SECOND = _quartiles("images a second", plain)
STEPS_A_SECOND = Unit(
    "steps a second", 1, lambda x, *_: plain(x), ": steps a second**, median"
)
MEMORY = Unit("MiB", 2**20, lambda x, *_: size(x), "**")
BITS_A_TOKEN = Unit("bits a token", 1, lambda x, *_: f"{x:.2f}")
PERPLEXITY = Unit("perplexity", 1, lambda x, *_: f"{x:.2f}")


class Axis(NamedTuple):
    """What varies along a table's columns and a chart's x axis.

    Attributes:
        field: of the rows.
        column: its value's heading, e.g. "n = {}".
        label: of the x axis.
    """

    field: str
    column: str
    label: str


def pivot(rows: DataFrame, index: str, axis: Axis, value: str) -> DataFrame:
    """A line for each of ``index`` that has a value, in the order of measurement.

    The columns are all places on the axis, also of cases that were left out.
    """
    pivoted = rows.pivot(index=index, columns=axis.field, values=value)
    pivoted = pivoted.reindex(rows[index].unique()).dropna(how="all")
    return pivoted.set_axis(pivoted.columns.astype(int), axis=1)


def by_name(rows: DataFrame, axis: Axis, value: str = "time") -> dict[str, Series]:
    """Contestant -> values over the axis, without gaps."""
    pivoted = pivot(rows, "contestant", axis, value)
    return {name: line.dropna() for name, line in pivoted.iterrows()}


@dataclass(frozen=True)
class Table:
    """A pivot of rows: a table of the page, and a panel of the chart.

    Attributes:
        title: of both.
        rows: no two of one index and place.
        value: column of the rows; its quartiles, if any, are value_lower, value_upper.
        unit: of the value.
        axis: of the columns.
        index: column of the rows: a line each.
        note: after the title, of the page only.
        text: column that has the cells' text, where it is not that of the unit.
        letter: of the axis, for a last column with the exponent of the value's growth.
        fitted: column with what is drawn dashed.
        listed: whether it is on the page, not in the chart alone.
    """

    title: str
    rows: DataFrame
    value: str
    unit: Unit
    axis: Axis
    index: str = "contestant"
    note: str = ""
    text: str | None = None
    letter: str | None = None
    fitted: str | None = None
    listed: bool = True

    def spreads(self) -> list[DataFrame]:
        """Medians, lower and upper quartiles: lines over the axis."""
        names = [
            name if name in self.rows else self.value
            for name in _with_quartiles(self.value)
        ]
        return [pivot(self.rows, self.index, self.axis, name) for name in names]

    def markdown(self) -> str:
        """Title and table; nothing where it is not listed."""
        if not self.listed:
            return ""
        medians, lower, upper = self.spreads()
        if self.text is not None:
            cells = pivot(self.rows, self.index, self.axis, self.text)
        else:
            cells = medians.astype(object)
            for name in medians.index:
                for at in medians.columns:
                    spread = (each.loc[name, at] for each in (medians, lower, upper))
                    cells.loc[name, at] = self.unit.cell(*spread)
        cells = cells.where(medians.notna(), "-")
        cells.columns = [self.axis.column.format(at) for at in medians.columns]
        if self.letter is not None:
            slopes = [growth(line) for _, line in medians.iterrows()]
            cells["growth"] = [
                "-" if slope is None else f"{self.letter}^{slope:.2f}"
                for slope in slopes
            ]
        title = f"**{self.title}{self.unit.title}{self.note}"
        return f"{title}\n\n{table(cells.rename_axis(None))}"


class Ratios(NamedTuple):
    """A table of values divided by those of one of the contestants.

    Attributes:
        title: in Markdown.
        rows: no two of one contestant and place.
        values: columns of the rows; a cell has a quotient of each.
        axis: of the columns.
        peer: by whose values the others' are divided.
    """

    title: str
    rows: DataFrame
    values: Sequence[str]
    axis: Axis
    peer: str

    def markdown(self) -> str:
        """Title and table; nothing where the peer has no values."""
        cells = ""
        for value in self.values:
            lines = pivot(self.rows, "contestant", self.axis, value)
            if self.peer not in lines.index:
                return ""
            quotients = (lines / lines.loc[self.peer]).drop(self.peer)
            shown = quotients.map(lambda x: "-" if pandas.isna(x) else f"{plain(x)}x")
            cells = cells + ", " + shown if isinstance(cells, DataFrame) else shown
        cells = cells.where(quotients.notna(), "-")
        cells.columns = [self.axis.column.format(at) for at in cells.columns]
        return f"{self.title}\n\n{table(cells.rename_axis(None))}"
