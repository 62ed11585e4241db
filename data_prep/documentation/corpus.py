"""Documents divided among the splits, and the files they go to."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from fairseq_transnormer.data import MANIFEST, SPLITS

from ..folders.options import Place
from ..folders.staging import Record, Work, publish
from .prose import comparison_key

# paragraphs by document
Documents = dict[str, list[str]]


def prepare_documents(
    place: Place,
    settings: Record,
    collect: Callable[[], dict[str, Documents]],
    write: Callable[[Work, dict[str, Documents]], Record],
) -> None:
    """Write what ``collect`` returns by split, unless it is there already.

    The manifest has what ``write`` returns, and the documents' names.
    """

    def make(work: Work) -> Record:
        splits = collect()
        names = {split: list(documents) for split, documents in splits.items()}
        return {**write(work, splits), "documents": names}

    publish(place, settings, MANIFEST, make)


def hashed_split(document: str, salt: int, held_out_share: float) -> str:
    """The split that a document of this name belongs to, on every machine.

    valid and test each get ``held_out_share`` of the names.
    """
    digest = hashlib.sha256(f"{salt}:{document}".encode()).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    if position < held_out_share:
        return "valid"
    return "test" if position < 2 * held_out_share else "train"


def divided(
    documents: Documents, salt: int, held_out_share: float, source: str
) -> dict[str, Documents]:
    """Documents by split; a paragraph is kept where it stands first.

    Equality ignores case and punctuation, so that no paragraph of valid or test has a
    near twin in train. Raises ValueError where a split would be empty; ``source`` is
    named.
    """
    seen: set[str] = set()
    splits: dict[str, Documents] = {name: {} for name in SPLITS}
    for name, paragraphs in sorted(documents.items()):
        own = splits[hashed_split(name, salt, held_out_share)]
        for paragraph in paragraphs:
            key = comparison_key(paragraph)
            if key not in seen:
                seen.add(key)
                own.setdefault(name, []).append(paragraph)
    for name, content in splits.items():
        if not content:
            raise ValueError(f"{source}: no documentation found for the {name} split")
    return splits


def write_texts(work: Work, splits: dict[str, Documents]) -> Record:
    """Write SPLIT.txt: a paragraph a line, a blank line between documents."""
    return {"splits": {split: _write(work, split, splits[split]) for split in SPLITS}}


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
