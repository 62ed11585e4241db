"""One text divided among train, valid and test: by document, or by paragraph."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_prep.folders.binary_folder import Split
from data_prep.folders.command import add_seed
from data_prep.folders.text_files import TextFile, read_lines
from data_prep.own_text.documents import (
    sizes_of_splits,
    split_documents,
    without_copies,
)
from data_prep.own_text.paragraphs import DividedParagraphs
from fairseq_transnormer.argument_types import number_between
from fairseq_transnormer.data import SPLITS

WAYS = ("auto", "document", "paragraph")
DEFAULT_FRACTIONS = [0.9, 0.05, 0.05]
DEFAULT_SEED = 1
NO_SUFFIX = "none"
# with fewer documents in a split, one of another language would be much of it
FEWEST_DIVIDED = 5
# the figures of fewer documents are figures of these documents
FEWEST_TRUSTED = 20


@dataclass(frozen=True)
class Division:
    """A text in splits.

    Attributes:
        by: "document" or "paragraph".
        splits: in their order.
        settings: what the division follows from, content included.
        reason: why it is by paragraph where that was not asked for; else "".
    """

    by: str
    splits: list[Split]
    settings: dict[str, Any]
    reason: str = ""

    def show(self) -> None:
        """Print what each split got, with warnings on stderr."""
        print(self.title())
        for split in self.splits:
            parts = [f"{number:,} {name}" for name, number in split.counts.items()]
            print(f"  {split.name}: text of {', '.join(parts)}")
        for sentence in self.warnings():
            print(f"warning: {sentence}", file=sys.stderr)

    def title(self) -> str:
        """By what it is divided, and why."""
        return f"divided by {self.by}" + (f": {self.reason}" if self.reason else "")

    def warnings(self) -> list[str]:
        """What makes the figures of a split doubtful."""
        few = {
            split.name: split.counts["documents"]
            for split in self.splits
            if split.counts["documents"] < FEWEST_TRUSTED
        }
        if not few:
            return []
        named = ", ".join(f"{name} {number}" for name, number in few.items())
        sentence = (
            f"text of fewer than {FEWEST_TRUSTED} documents ({named}): what is special "
            "to one of them, such as its language, weighs much in the figures"
        )
        if self.by == "paragraph":
            sentence += (
                "; other paragraphs of the documents in valid and test are in train, "
                "so new documents will be harder"
            )
        return [sentence]


def divide(
    files: Sequence[TextFile],
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    seed: int = DEFAULT_SEED,
    by: str = "auto",
) -> Division:
    """Divides the text of files among train, valid and test.

    Args:
        files: a document each; of copies the first is read.
        fractions: parts of train, valid and test.
        seed: another one, another division.
        by: "document"; "paragraph"; "auto": by document, but by paragraph where that
            would leave fewer than FEWEST_DIVIDED in valid or test.

    Raises:
        ValueError: there is too little text for the splits.
    """
    if not any(file.has_text for file in files):
        raise ValueError(f"no text in {_names(files)}")
    files = without_copies(files)
    reason = ""
    if by == "auto":
        count = len(files)
        held_out = [
            n for n in list(sizes_of_splits(count, fractions).values())[1:] if n
        ]
        by = "paragraph" if min(held_out) < FEWEST_DIVIDED else "document"
        if by == "paragraph":
            reason = (
                f"of {count} different documents {min(held_out)} would be in a split, "
                f"of which {FEWEST_DIVIDED} are needed"
            )
    if by == "document":
        return whole_documents(split_documents(files, fractions, seed))
    divided = DividedParagraphs(files, fractions, seed)
    splits = [
        Split(
            name,
            lambda name=name: divided.lines(name),
            2 * divided.counts(name)["paragraphs"],
            divided.counts(name),
        )
        for name, part in zip(SPLITS, fractions, strict=True)
        if part
    ]
    settings = {
        "documents": [file.fingerprint() for file in files],
        "split_by": "paragraph",
        "fractions": list(fractions),
        "split_seed": seed,
    }
    return Division("paragraph", splits, settings, reason)


def whole_documents(divided: dict[str, list[TextFile]]) -> Division:
    """The files of each split; raises ValueError where one has no text."""
    for name, chosen in divided.items():
        if not any(file.has_text for file in chosen):
            raise ValueError(f"{name}: empty split: no text in {_names(chosen)}")
    splits = [
        Split(
            name,
            lambda chosen=chosen: read_lines(chosen),
            sum(file.line_count for file in chosen),
            {"documents": len(chosen)},
        )
        for name, chosen in divided.items()
    ]
    documents = {
        name: [file.fingerprint() for file in chosen]
        for name, chosen in divided.items()
    }
    return Division("document", splits, {"documents": documents})


def _names(files: Sequence[TextFile]) -> str:
    shown = ", ".join(str(file.path) for file in files[:3])
    return f"{shown} and {len(files) - 3} more" if len(files) > 3 else shown


def add_division(parser: argparse.ArgumentParser, condition: str = "") -> None:
    """``--split-by``, ``--fractions`` and ``--seed``; None where they are not given."""
    add = parser.add_argument
    add(
        "--split-by",
        choices=WAYS,
        help=f"{condition}what is kept whole in a split; auto: documents, but "
        f"paragraphs where valid or test would get fewer than {FEWEST_DIVIDED} "
        "documents (default: auto)",
    )
    add(
        "--fractions",
        nargs=3,
        type=number_between(0, 1),
        metavar=("TRAIN", "VALID", "TEST"),
        help=f"{condition}parts of the documents, of their bytes where they are "
        "divided, with the sum 1 (default: 0.9 0.05 0.05); a test part of 0 makes no "
        "test split",
    )
    text = f"{condition}another seed, another division (default: {DEFAULT_SEED})"
    add_seed(parser, text, None)


def divided_as_asked(
    files: Sequence[TextFile], options: argparse.Namespace
) -> Division:
    """``divide`` by the options of ``add_division``."""
    fractions = options.fractions
    if fractions and (abs(sum(fractions) - 1) > 1e-6 or 0 in fractions[:2]):
        raise ValueError(
            "--fractions must be three numbers with the sum 1, of which only the last "
            f"may be 0, got {' '.join(map(str, fractions))}"
        )
    return divide(
        files,
        fractions or DEFAULT_FRACTIONS,
        DEFAULT_SEED if options.seed is None else options.seed,
        options.split_by or WAYS[0],
    )


def add_suffixes(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """``--suffixes``."""
    parser.add_argument(
        "--suffixes",
        nargs="+",
        type=_suffix,
        default=list(default),
        metavar="SUFFIX",
        help="of the files that are read in folders, as they are, markup included "
        f"(default: {' '.join(default)}); hidden files and folders are left out, and "
        "files that are named are read whatever their suffix; none: files without one",
    )


def _suffix(text: str) -> str:
    return "" if text == NO_SUFFIX else text.lower()
