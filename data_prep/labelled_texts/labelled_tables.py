"""Labelled texts in memory, and the tables that they are read from.

A table is a TSV, CSV or JSONL file with named columns. Lines that cannot become an
example are left out and counted, or refused.
"""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from fairseq_transnormer.data.texts import one_line_text

# More than this is no blemish of the file: it is another file, or a damaged one.
MAX_MALFORMED_SHARE = 0.01
MIN_MALFORMED_LINES = 10
TABLES = (".tsv", ".csv", ".jsonl")

# a line's number, and its values by column
Row = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class Example:
    """One text or two, from ``line`` of its file; ``label`` None: it has none."""

    index: str
    texts: list[str]
    label: str | None
    line: int


@dataclass
class LabelledSplit:
    """A split's examples, and the lines of its file ``where`` that were left out.

    Where ``strict`` the first such line is a ValueError instead. ``reasons`` has the
    lines by what is wrong with them.
    """

    where: str
    strict: bool
    examples: list[Example] = field(default_factory=list)
    reasons: dict[str, list[int]] = field(default_factory=dict)

    def add(
        self,
        line: int,
        index: str,
        texts: list[str | None],
        label: str | None,
        needs_text: bool = True,
        needs_label: bool = True,
    ) -> None:
        """Take a line as an example, or leave it out for lack of a text or label."""
        written = [one_line_text(each or "") for each in texts]
        label = one_line_text(label or "") or None
        if needs_text and not all(written):
            self.skip(line, "an empty text")
        elif needs_label and label is None:
            self.skip(line, "no label")
        else:
            self.examples.append(Example(index, written, label, line))

    def skip(self, line: int, reason: str) -> None:
        """Count ``line``, whose fault is ``reason``, or raise ValueError."""
        if self.strict:
            raise ValueError(f"{self.where}, line {line}: {reason}")
        self.reasons.setdefault(reason, []).append(line)

    @property
    def skipped(self) -> int:
        """How many lines were left out."""
        return sum(map(len, self.reasons.values()))

    def require_good(self) -> None:
        """Raise ValueError if too many lines are malformed, or none is an example."""
        lines = len(self.examples) + self.skipped
        if self.skipped > max(MIN_MALFORMED_LINES, lines * MAX_MALFORMED_SHARE):
            raise ValueError(
                f"{self.where}: {self.skipped:,} of {lines:,} lines are malformed "
                f"({self.left_out()}); allowed is 1 in 100: it is damaged, or another "
                "format"
            )
        if not self.examples:
            raise ValueError(f"{self.where}: no example")

    def left_out(self) -> str:
        """The reasons, with their first lines."""
        return "; ".join(
            f"{len(lines):,} with {reason}, first in line {lines[0]}"
            for reason, lines in self.reasons.items()
        )


def read_table(
    path: Path,
    texts: list[str],
    label: str,
    labelled: bool,
    skip_malformed: bool,
    one_type: bool = False,
) -> LabelledSplit:
    """The file's examples, their labels as they are written.

    Args:
        texts: the column of texts, and that of pairs.
        label: the column of labels.
        labelled: False lets it be absent.
        skip_malformed: whether bad lines are left out and counted.
        one_type: labels of JSON are of the type of the first. Otherwise 1, 1.0, "1"
            and true would be several classes, or one.

    Raises:
        ValueError: a missing column; or, unless they are skipped, a line with another
            number of columns, or an empty text or label.
    """
    split, kind = LabelledSplit(str(path), strict=not skip_malformed), None
    for place, (line, row) in enumerate(_rows(path, split)):
        has_label = labelled or label in row
        wanted = [*texts, label] if has_label else texts
        if place and (missing := [name for name in wanted if name not in row]):
            split.skip(line, f"no column {missing[0]!r}")
            continue
        values = columns_of(row, wanted, f"{path}, line {line}")
        found = type(values[-1])
        kind = kind or (None if values[-1] is None else found)
        if any(isinstance(value, list | dict) for value in values):
            split.skip(line, "a list or an object instead of a text or number")
        elif one_type and has_label and found not in (kind, NoneType):
            reason = f"the label {json.dumps(values[-1])}, the first is no such type"
            split.skip(line, reason)
        else:
            written = [None if value is None else _written(value) for value in values]
            given = written.pop() if has_label else None
            split.add(line, str(place), written, given, needs_label=has_label)
    return split


def _written(value: str | float) -> str:
    """As JSON writes it, but without quotes."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def columns_of(row: dict[str, Any], names: list[str], where: str) -> list[Any]:
    """The values of these columns; ValueError where one is missing."""
    missing = [name for name in names if name not in row]
    if missing:
        raise ValueError(
            f"{where}: no column {missing[0]!r}; its columns are {', '.join(row)}"
        )
    return [row[name] for name in names]


def tab_separated(
    path: Path, split: LabelledSplit, header: list[str] | None = None
) -> Iterator[Row]:
    """The rows of a TSV file, where no field is quoted; None: it has a header."""
    # a lone carriage return is part of a text, not the end of a line
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        fields = (line.rstrip("\r\n").split("\t") for line in file)
        yield from _by_header(enumerate(fields, 1), split, header)


def _rows(path: Path, split: LabelledSplit) -> Iterator[Row]:
    if path.suffix not in TABLES:
        raise ValueError(f"{path}: allowed are files *{', *'.join(TABLES)}")
    try:
        if path.suffix == ".tsv":
            yield from tab_separated(path, split)
            return
        with open(path, encoding="utf-8-sig", newline="") as file:
            if path.suffix == ".jsonl":
                yield from _jsonl(file, split)
                return
            csv.field_size_limit(sys.maxsize)
            reader = csv.reader(file, strict=True)
            lines = ((reader.line_num, fields) for fields in reader if fields)
            yield from _by_header(lines, split)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error.reason}") from error
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from error


def _by_header(
    lines: Iterator[tuple[int, list[str]]],
    split: LabelledSplit,
    header: list[str] | None = None,
) -> Iterator[Row]:
    header = header or next(lines, (1, []))[1]
    if len(set(header)) < len(header):
        raise ValueError(f"{split.where}, line 1: two columns of one name: {header}")
    for number, fields in lines:
        if len(fields) != len(header):
            split.skip(number, f"{len(fields)} columns instead of {len(header)}")
        else:
            yield number, dict(zip(header, fields, strict=True))


def _jsonl(lines: Iterable[str], split: LabelledSplit) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        try:
            # NaN is no label
            row = json.loads(line, parse_constant=lambda _: None)
        except ValueError:
            row = None
        if isinstance(row, dict):
            yield number, row
        elif line.strip():
            split.skip(number, "no JSON object")
