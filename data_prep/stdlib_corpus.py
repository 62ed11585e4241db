"""Makes a small English corpus from the documentation of Python's standard library.

For machines without data: it needs nothing but the running Python's own source
files. The text is their docstrings, their comments of two lines and more, and the
topics of pydoc; they are parsed, no module is imported. Code, tables and doctests are
left out, and a paragraph that occurs again is kept once.

A document is a top-level module or package, or the topics that quote one another. A
hash of its name puts it into train, valid or test (about 5 % each for the last two),
so that it is in the same split with every version of Python.

DIR gets train.txt, valid.txt and test.txt, with one paragraph a line and a blank line
between documents, and manifest.json with documents, counts and checksums.
"""

import argparse
import hashlib
import platform
import sys
import sysconfig
from pathlib import Path
from typing import Any

from data_prep.arguments import add_destination, command_parser
from data_prep.errors import InputError, run_command
from data_prep.prose import comparison_key
from data_prep.report import file_records
from data_prep.staging import Staging, is_complete, write_json
from data_prep.stdlib_documents import module_documents, topic_documents

MANIFEST = "manifest.json"
SPLITS = ("train", "valid", "test")
HELD_OUT_SHARE = 0.05
# Of 20,000 numbers the one with which valid and test have many documents and 4.6 to
# 5.4 % of the text each in the libraries of Python 3.10, 3.11, 3.12 and 3.13.
SALT = 8837

Documents = dict[str, list[str]]


def split_of(document: str) -> str:
    """The split that a document of this name belongs to, in every Python version."""
    digest = hashlib.sha256(f"{SALT}:{document}".encode()).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    if position < HELD_OUT_SHARE:
        return "valid"
    return "test" if position < 2 * HELD_OUT_SHARE else "train"


def without_repetitions(documents: Documents) -> Documents:
    """Keeps each paragraph where it stands first; drops what then is empty.

    Equality ignores case and punctuation, so that no paragraph of valid or test has a
    near twin in train.
    """
    seen: set[str] = set()
    kept: Documents = {}
    for name, paragraphs in sorted(documents.items()):
        for paragraph in paragraphs:
            key = comparison_key(paragraph)
            if key not in seen:
                seen.add(key)
                kept.setdefault(name, []).append(paragraph)
    return kept


def collect(stdlib: Path) -> dict[str, Documents]:
    """The corpus: paragraphs by document by split."""
    documents = module_documents(stdlib) | topic_documents(stdlib)
    splits: dict[str, Documents] = {split: {} for split in SPLITS}
    for name, paragraphs in without_repetitions(documents).items():
        splits[split_of(name)][name] = paragraphs
    for split, content in splits.items():
        if not content:
            raise InputError(f"{stdlib}: no documentation found for the {split} split")
    return splits


def _write(splits: dict[str, Documents], folder: Path) -> dict[str, Any]:
    counts = {}
    for split, documents in splits.items():
        text = "\n".join(
            "".join(f"{paragraph}\n" for paragraph in paragraphs)
            for paragraphs in documents.values()
        )
        (folder / f"{split}.txt").write_text(text, encoding="utf-8")
        counts[split] = {
            "documents": len(documents),
            "paragraphs": sum(map(len, documents.values())),
            "words": len(text.split()),
            "bytes": len(text.encode()),
        }
    return counts


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("stdlib_corpus", __doc__)
    add_destination(parser)
    options = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _prepare(options))


def _prepare(options: argparse.Namespace) -> None:
    settings = {"command": "stdlib_corpus", "python": platform.python_version()}
    if is_complete(options.dest, settings, MANIFEST, options.overwrite):
        print(f"{options.dest}: already complete with these settings, nothing to do")
        return
    with Staging(options.dest, settings) as staging:
        splits = collect(Path(sysconfig.get_paths()["stdlib"]))
        counts = _write(splits, staging.folder)
        manifest = {
            "settings": settings,
            "splits": counts,
            "documents": {split: list(splits[split]) for split in SPLITS},
            "files": file_records(staging.folder / f"{name}.txt" for name in SPLITS),
        }
        write_json(staging.folder / MANIFEST, manifest)
        staging.publish()
    for split, numbers in counts.items():
        text = ", ".join(f"{number:,} {unit}" for unit, number in numbers.items())
        print(f"{options.dest / split}.txt: {text}")


if __name__ == "__main__":
    sys.exit(main())
