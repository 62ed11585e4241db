"""A corpus as text: documents divided among the splits, and the files they go to."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from data_prep.documentation.prose import comparison_key
from data_prep.folders.staging import Record, Work, publish
from fairseq_transnormer.data import MANIFEST, SPLITS

# paragraphs by document
Documents = dict[str, list[str]]


def hashed_split(document: str, salt: int, held_out_share: float) -> str:
    """The split that a document of this name belongs to, on every machine.

    valid and test each get ``held_out_share`` of the names.
    """
    digest = hashlib.sha256(f"{salt}:{document}".encode()).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    if position < held_out_share:
        return "valid"
    return "test" if position < 2 * held_out_share else "train"


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


def divided(
    documents: Documents, split: Callable[[str], str], source: str
) -> dict[str, Documents]:
    """Documents by split, without repetitions.

    Raises ValueError where a split would be empty; ``source`` is named.
    """
    splits: dict[str, Documents] = {name: {} for name in SPLITS}
    for name, paragraphs in without_repetitions(documents).items():
        splits[split(name)][name] = paragraphs
    for name, content in splits.items():
        if not content:
            raise ValueError(f"{source}: no documentation found for the {name} split")
    return splits


def prepare_corpus(
    dest: Path,
    settings: dict[str, Any],
    overwrite: bool,
    collect: Callable[[], dict[str, Documents]],
) -> None:
    """Writes what ``collect`` returns, and its manifest, unless it is there already."""

    def make(work: Work) -> Record:
        splits = collect()
        return {
            "splits": {split: _write(work, split, splits[split]) for split in SPLITS},
            "documents": {split: list(splits[split]) for split in SPLITS},
        }

    publish(dest, settings, MANIFEST, overwrite, make)


def _write(work: Work, split: str, documents: Documents) -> dict[str, int]:
    text = "\n".join(
        "".join(f"{paragraph}\n" for paragraph in paragraphs)
        for paragraphs in documents.values()
    )
    work.file(f"{split}.txt").write_text(text, encoding="utf-8")
    return {
        "documents": len(documents),
        "paragraphs": sum(map(len, documents.values())),
        "words": len(text.split()),
        "bytes": len(text.encode()),
    }


def write_table(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Rows as lines, with tabs between their fields."""
    lines = ("\t".join(map(str, row)) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
