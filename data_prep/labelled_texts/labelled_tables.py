"""The user's own labelled texts: TSV, CSV and JSONL files with named columns."""

import csv
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_transnormer.data.texts import one_line_text

from .labelled_examples import Example, LabelledSplit

FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}

Row = tuple[int, dict[str, Any]]


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
        one_type: labels of JSON are of the type of the first: 1, 1.0, "1" and true
            would be several classes, or one.

    Raises:
        ValueError: a missing file or column; or, unless they are skipped, a line with
            another number of columns, an empty text or label.
    """
    split = LabelledSplit(str(path), strict=not skip_malformed)
    line, kind = 0, None
    for place, (line, row) in enumerate(_rows(path, split)):
        has_label = labelled or label in row
        wanted = [*texts, label] if has_label else texts
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
        if one_type and has_label and not faults:
            kind = kind or type(values[-1])
            if type(values[-1]) is not kind:
                faults = [
                    f"{json.dumps(values[-1])[:80]} as {label!r}, allowed is the type "
                    f"of the first label, {kind.__name__}"
                ]
        if faults:
            split.skip(line, faults[0])
            continue
        pair = fields[1] if len(texts) > 1 else None
        given = fields[-1] if has_label else None
        split.examples.append(Example(str(place), fields[0], pair, given, line))
    split.finish(line)
    return split


def _rows(path: Path, split: LabelledSplit) -> Iterator[Row]:
    """Lines by number, of each its values by column."""
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: allowed are files *{', *'.join(FORMATS)}")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            if kind == "jsonl":
                yield from _jsonl(file, split)
            elif kind == "csv":
                csv.field_size_limit(sys.maxsize)
                reader = csv.reader(file, strict=True)
                lines = ((reader.line_num, fields) for fields in reader if fields)
                yield from _by_header(lines, split)
            else:
                # nothing is quoted: a quotation mark is a character like any other
                content = file.read().replace("\r\n", "\n").removesuffix("\n")
                fields = (line.split("\t") for line in content.split("\n"))
                yield from _by_header(enumerate(fields, 1), split)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error.reason}") from error
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from error


def _by_header(
    lines: Iterator[tuple[int, list[str]]], split: LabelledSplit
) -> Iterator[Row]:
    _, header = next(lines, (1, []))
    if len(set(header)) < len(header):
        raise ValueError(f"{split.where}, line 1: two columns of one name: {header}")
    for number, fields in lines:
        if len(fields) != len(header):
            split.skip(number, f"{len(fields)} columns instead of {len(header)}")
        else:
            yield number, dict(zip(header, fields, strict=True))


def _jsonl(file: Any, split: LabelledSplit) -> Iterator[Row]:
    for number, line in enumerate(file, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield number, row
        elif line.strip():
            split.skip(number, "no JSON object")


def _fault(name: str, value: Any) -> str | None:
    """What keeps a value of JSON from being a text or label."""
    kind = ""
    if isinstance(value, list | dict):
        kind = "a list" if isinstance(value, list) else "an object"
    elif isinstance(value, float) and not math.isfinite(value):
        kind = str(value)
    elif isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        kind = "half a surrogate pair"
    return (
        f"{kind} as {name!r}, allowed are Unicode texts and numbers" if kind else None
    )
