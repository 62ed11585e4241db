"""One text divided among train, valid and test: by document, or by paragraph."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairseq_transnormer.data import SPLITS

from ..folders.binary_folder import Split
from ..folders.options import at_least, listed
from ..folders.text_files import TextFile, read_lines
from .documents import without_copies
from .paragraphs import DividedParagraphs

Way = Literal["auto", "document", "paragraph"]
Fractions = tuple[float, float, float]
# with fewer documents in a split, one of another language would be much of it
FEWEST_DIVIDED = 5
# the figures of fewer documents are figures of these documents
FEWEST_TRUSTED = 20


@dataclass(frozen=True)
class Wanted:
    """How a text is divided."""

    split_by: Way = "auto"
    """what stays whole; auto: documents, but paragraphs where valid would have few"""
    fractions: Fractions = (0.9, 0.05, 0.05)
    """parts, of documents by number, of paragraphs by bytes; their sum is 1, the last
    may be 0"""
    seed: int = 1
    """another seed, another division"""

    def __post_init__(self) -> None:
        at_least(0, seed=self.seed)
        if self.seed >= 2**64:
            raise ValueError(f"--seed must be below 2**64, got {self.seed}")
        train, valid, test = self.fractions
        whole = abs(train + valid + test - 1) <= 1e-6
        if not (whole and train > 0 and valid > 0 and test >= 0):
            raise ValueError(
                "--fractions must be three numbers with the sum 1, of which only the "
                f"last may be 0, got {train} {valid} {test}"
            )


@dataclass(frozen=True)
class Division:
    """A text in splits.

    Attributes:
        by: "document" or "paragraph".
        splits: in their order.
        settings: what the division follows from, content included.
        reason: after a colon, why it is by paragraph where that was not asked for.
    """

    by: str
    splits: list[Split]
    settings: dict[str, Any]
    reason: str = ""

    def show(self) -> None:
        """Print on stderr what each split got, and what makes its figures doubtful."""
        told = [f"divided by {self.by}{self.reason}"]
        for split in self.splits:
            parts = [f"{number:,} {name}" for name, number in split.counts.items()]
            told.append(f"  {split.name}: text of {', '.join(parts)}")
        few = [
            f"{split.name} {split.counts['documents']}"
            for split in self.splits
            if split.counts["documents"] < FEWEST_TRUSTED
        ]
        if few:
            told.append(
                f"warning: text of fewer than {FEWEST_TRUSTED} documents "
                f"({', '.join(few)}): what is special to one of them weighs much"
            )
        if self.by == "paragraph":
            told.append(
                "warning: other paragraphs of the documents in valid and test are in "
                "train, so new documents will be harder"
            )
        print("\n".join(told), file=sys.stderr)


def divide(files: Sequence[TextFile], wanted: Wanted) -> Division:
    """Divide the text of files, a document each, among train, valid and test.

    Of copies the first is read. ``auto`` is by document, but by paragraph where that
    would leave fewer than FEWEST_DIVIDED in valid or test.

    Raises:
        ValueError: there is too little text for the splits.
    """
    if not any(file.has_text for file in files):
        raise ValueError(f"no text in {listed([file.path for file in files])}")
    files = [file for file in without_copies(files) if file.has_text]
    fractions, by, reason = wanted.fractions, wanted.split_by, ""
    if by == "auto":
        _, *held_out = sizes_of_splits(len(files), fractions).values()
        fewest = min(filter(None, held_out))
        by = "paragraph" if fewest < FEWEST_DIVIDED else "document"
        if by == "paragraph":
            reason = (
                f": of {len(files)} different documents {fewest} would be in a split, "
                f"of which {FEWEST_DIVIDED} are needed"
            )
    if by == "document":
        return whole_documents(split_documents(files, fractions, wanted.seed))
    divided = DividedParagraphs(files, fractions, wanted.seed)

    def split(name: str) -> Split:
        counts = divided.counts(name)
        return Split(
            name, lambda: divided.lines(name), 2 * counts["paragraphs"], counts
        )

    settings = {
        "documents": [file.fingerprint() for file in files],
        "split_by": "paragraph",
        "fractions": fractions,
        "split_seed": wanted.seed,
    }
    wanted_splits = [x for x, part in zip(SPLITS, fractions, strict=True) if part]
    return Division("paragraph", [*map(split, wanted_splits)], settings, reason)


def whole_documents(divided: dict[str, list[TextFile]]) -> Division:
    """The files of each split; raises ValueError where one has no text."""

    def split(name: str, files: list[TextFile]) -> Split:
        if not any(file.has_text for file in files):
            paths = listed([file.path for file in files])
            raise ValueError(f"{name}: empty split: no text in {paths}")
        lines = sum(file.line_count for file in files)
        counts = {"documents": len(files)}
        return Split(name, lambda: read_lines(files), lines, counts)

    documents = {
        name: [file.fingerprint() for file in files] for name, files in divided.items()
    }
    splits = [split(name, files) for name, files in divided.items()]
    return Division("document", splits, {"documents": documents})


def sizes_of_splits(count: int, fractions: Fractions) -> dict[str, int]:
    """How many of ``count`` documents each split gets, one at least if it is wanted.

    train gets what the others leave: none, or less, of too few documents.
    """
    sizes = {
        split: max(1, round(part * count)) if part else 0
        for split, part in zip(SPLITS[1:], fractions[1:], strict=True)
    }
    largest, others = max(sizes, key=lambda split: sizes[split]), min(sizes.values())
    sizes[largest] = max(1, min(sizes[largest], count - 1 - others))
    return {"train": count - sum(sizes.values())} | sizes


def split_documents(
    files: Sequence[TextFile], fractions: Fractions, seed: int
) -> dict[str, list[TextFile]]:
    """Divide files, of which none is a copy, among train, valid and test.

    The order is by a hash of seed and content, so that names and places of files do
    not matter. Every split whose fraction is not zero gets at least one document.
    """

    def rank(file: TextFile) -> str:
        return hashlib.sha256(f"{seed}:{file.sha256}".encode()).hexdigest()

    documents = sorted(files, key=rank)
    sizes = sizes_of_splits(len(documents), fractions)
    if sizes["train"] < 1:
        wanted = [split for split, size in sizes.items() if size or split == "train"]
        raise ValueError(
            f"{len(documents)} different documents cannot fill the "
            f"{len(wanted)} splits {', '.join(wanted)}; allowed: {len(wanted)} or "
            "more, or --split-by paragraph"
        )
    homes = [split for split, size in sizes.items() for _ in range(size)]
    home = {file.sha256: split for file, split in zip(documents, homes, strict=True)}
    return {
        split: [file for file in files if home[file.sha256] == split]
        for split in dict.fromkeys(homes)
    }
