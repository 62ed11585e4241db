"""The user's own labelled texts: TSV, CSV and JSONL files with named columns."""

import csv
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.labelled_texts.labelled_examples import (
    Example,
    LabelledSplit,
    Malformed,
)
from fairseq_transnormer.data.texts import one_line_text

FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}

Row = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class Columns:
    """The names of the columns; ``pair`` is None for single texts."""

    text: str
    pair: str | None
    label: str

    def texts(self) -> list[str]:
        """The columns of texts."""
        return [self.text] if self.pair is None else [self.text, self.pair]


def read_table(
    path: Path,
    columns: Columns,
    labelled: bool,
    skip_malformed: bool,
    one_type: bool = False,
) -> LabelledSplit:
    """The file's examples, their labels as they are written.

    Args:
        labelled: False lets the column of labels be absent.
        skip_malformed: whether bad lines are left out and counted.
        one_type: labels of JSON are of the type of the first: 1, 1.0, "1" and true
            would be several classes, or one.

    Raises:
        ValueError: a missing file or column; or, unless they are skipped, a line with
            another number of columns, an empty text or label.
    """
    malformed = Malformed(str(path), allowed=skip_malformed)
    examples: list[Example] = []
    line, kind = 0, None
    for place, (line, row) in enumerate(_rows(path, malformed)):
        wanted = columns.texts()
        if labelled or columns.label in row:
            wanted.append(columns.label)
        missing = [name for name in wanted if name not in row]
        if missing:
            raise ValueError(
                f"{path}, line {line}: no column {missing[0]!r}; its columns are "
                f"{', '.join(row)}"
            )
        values = [row[name] for name in wanted]
        fields = [one_line_text("" if x is None else str(x)) for x in values]
        faults = [*filter(None, map(_fault, wanted, values))]
        if not faults and not all(fields):
            faults = [f"an empty {wanted[fields.index('')]!r}"]
        has_label = columns.label in wanted
        if one_type and has_label and not faults:
            kind = kind or type(values[-1])
            if type(values[-1]) is not kind:
                shown = json.dumps(values[-1])[:80]
                faults = [
                    f"{shown} as {columns.label!r}, allowed is the type of the first "
                    f"label, {kind.__name__}"
                ]
        if faults:
            malformed.skip(line, faults[0])
            continue
        label = fields[-1] if has_label else None
        pair = fields[1] if columns.pair else None
        examples.append(Example(str(place), fields[0], pair, label, line))
    malformed.finish(line)
    return LabelledSplit(examples, malformed)


def _rows(path: Path, malformed: Malformed) -> Iterator[Row]:
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: allowed are files *{', *'.join(FORMATS)}")
    readers = {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            yield from readers[FORMATS[path.suffix.lower()]](path, file, malformed)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error.reason}") from error


def _tsv(path: Path, file: Any, malformed: Malformed) -> Iterator[Row]:
    """Nothing is quoted: a quotation mark is a character like any other."""
    content = file.read().replace("\r\n", "\n").removesuffix("\n")
    lines = ((n, line.split("\t")) for n, line in enumerate(content.split("\n"), 1))
    yield from _by_header(path, lines, malformed)


def _csv(path: Path, file: Any, malformed: Malformed) -> Iterator[Row]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(file, strict=True)
    lines = ((reader.line_num, fields) for fields in reader if fields)
    try:
        yield from _by_header(path, lines, malformed)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from error


def _by_header(
    path: Path, lines: Iterator[tuple[int, list[str]]], malformed: Malformed
) -> Iterator[Row]:
    _, header = next(lines, (1, []))
    if len(set(header)) < len(header):
        raise ValueError(f"{path}, line 1: two columns of one name: {header}")
    for number, fields in lines:
        if len(fields) != len(header):
            malformed.skip(number, f"{len(fields)} columns instead of {len(header)}")
        else:
            yield number, dict(zip(header, fields, strict=True))


def _jsonl(path: Path, file: Any, malformed: Malformed) -> Iterator[Row]:
    for number, line in enumerate(file, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield number, row
        elif line.strip():
            malformed.skip(number, "no JSON object")


def _fault(name: str, value: Any) -> str | None:
    """What keeps a value of JSON from being a text or label."""
    if isinstance(value, list | dict):
        kind = "a list" if isinstance(value, list) else "an object"
        return f"{kind} as {name!r}, allowed are texts and numbers"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} as {name!r}, allowed are texts and numbers"
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        return f"half a surrogate pair in {name!r}, allowed is Unicode text"
    return None
