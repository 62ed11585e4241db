"""``data_prep stdlib_problems``: small classification problems without a download."""

from __future__ import annotations

import platform
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ..folders.options import Place
from ..folders.staging import Record, Work
from .corpus import Documents, divided, prepare_documents, write_table
from .stdlib_corpus import package_documents

PACKAGES = ("asyncio", "email", "importlib", "multiprocessing", "unittest")
EXAMPLES = {"train": 240, "valid": 60, "test": 30}
HELD_OUT_SHARE = 0.2
# the first number with which valid and test have three files of each package or more
SALT = 58

Rows = list[tuple[object, ...]]


def stdlib_problems(place: Place) -> None:
    """Make three small classification problems of the standard library's documentation.

    They show that a fine-tuning runs on machines without data. The text is the
    docstrings and comments of the running Python's source files, as in data_prep
    stdlib_corpus. The labels are not random, but so few examples measure nothing.

    topics (index, sentence, label), for data_prep classification: which package does a
    paragraph document? CoLA and MNLI have the layout of GLUE's original files, for
    data_prep glue --from-dir DIR --allow-other-sizes. CoLA: does a paragraph stand as
    it was written (1), or with its words in another order (0)? MNLI: are two paragraphs
    of one file (entailment), of two files of one package (neutral), or of two packages
    (contradiction)? No file of the library is in two splits.
    """
    settings = {"command": "stdlib_problems", "python": platform.python_version()}
    stdlib = Path(sysconfig.get_paths()["stdlib"])

    def collect() -> dict[str, Documents]:
        documents = package_documents(stdlib, PACKAGES)
        return divided(documents, SALT, HELD_OUT_SHARE, str(stdlib))

    prepare_documents(place, settings, collect, _write)


def _write(work: Work, splits: dict[str, Documents]) -> Record:
    counts = {}
    for name, header, rows in tables(splits):
        write_table(work.file(name), [*([header] if header else []), *rows])
        counts[name] = {"examples": len(rows)}
    return {"splits": counts}


def topics(documents: Documents, count: int, draw: random.Random) -> Rows:
    """(index, paragraph, package); as many of each package."""
    rows: Rows = []
    for package in PACKAGES:
        found = [text for name in _of(documents, package) for text in documents[name]]
        rows += [(text, package) for text in draw.sample(found, count // len(PACKAGES))]
    draw.shuffle(rows)
    return [(index, *row) for index, row in enumerate(rows)]


def acceptability(documents: Documents, count: int, draw: random.Random) -> Rows:
    """(source, label, mark, paragraph), as CoLA's files have them."""
    texts = draw.sample([text for each in documents.values() for text in each], count)
    rows: Rows = []
    for place, text in enumerate(texts):
        label = place % 2
        words = text.split()
        if not label:
            draw.shuffle(words)
        rows.append(("lib", label, "" if label else "*", " ".join(words)))
    return rows


def same_source(documents: Documents, count: int, draw: random.Random) -> Rows:
    """(index, paragraph, paragraph, label); as many of each label."""
    rows: Rows = []
    for index in range(count):
        package, other = draw.sample(PACKAGES, 2)
        files = _of(documents, package)
        name = draw.choice([each for each in files if len(documents[each]) > 1])
        text, same_file = draw.sample(documents[name], 2)
        same_package = draw.choice([each for each in files if each != name])
        elsewhere = draw.choice(_of(documents, other))
        pair, label = (
            (same_file, "entailment"),
            (draw.choice(documents[same_package]), "neutral"),
            (draw.choice(documents[elsewhere]), "contradiction"),
        )[index % 3]
        rows.append((index, text, pair, label))
    return rows


def _of(documents: Documents, package: str) -> list[str]:
    return [name for name in documents if name.startswith(f"{package}/")]


def tables(splits: dict[str, Documents]) -> Iterator[tuple[str, list[str], Rows]]:
    """Name, header (none: []) and rows of each file."""
    draw = random.Random(0)
    for split, file in (("train", "train"), ("valid", "dev"), ("test", "test")):
        documents, count = splits[split], EXAMPLES[split]
        rows = topics(documents, count, draw)
        yield f"topics/{file}.tsv", ["index", "sentence", "label"], rows
        rows = acceptability(documents, count, draw)
        if split == "test":
            rows = [(index, row[-1]) for index, row in enumerate(rows)]
        header = ["index", "sentence"] if split == "test" else []
        yield f"CoLA/{file}.tsv", header, rows
        header = ["index", "sentence1", "sentence2", "gold_label"]
        for kind in ("",) if split == "train" else ("_matched", "_mismatched"):
            rows = same_source(documents, count, draw)
            wide = 3 if split == "test" else 4
            name = f"MNLI/{file}{kind}.tsv"
            yield name, header[:wide], [row[:wide] for row in rows]
