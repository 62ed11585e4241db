"""A corpus as text: documents divided among the splits, and the files they go to."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_prep.documentation.prose import comparison_key
from data_prep.folders.errors import InputError
from data_prep.folders.report import file_records
from data_prep.folders.staging import Staging
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

    Raises InputError where a split would be empty; ``source`` is named.
    """
    splits: dict[str, Documents] = {name: {} for name in SPLITS}
    for name, paragraphs in without_repetitions(documents).items():
        splits[split(name)][name] = paragraphs
    for name, content in splits.items():
        if not content:
            raise InputError(f"{source}: no documentation found for the {name} split")
    return splits


def prepare_corpus(
    dest: Path,
    settings: dict[str, Any],
    overwrite: bool,
    collect: Callable[[], dict[str, Documents]],
) -> None:
    """Writes what ``collect`` returns, and its manifest, unless it is there already."""
    staging = Staging(dest, settings, MANIFEST, overwrite)
    if staging.is_complete():
        return
    with staging:
        splits = collect()
        staging.expect(f"{name}.txt" for name in SPLITS)
        counts = _write(splits, staging.folder)
        manifest = {
            "settings": settings,
            "splits": counts,
            "documents": {split: list(splits[split]) for split in SPLITS},
            "files": file_records(
                staging.folder, (staging.folder / f"{name}.txt" for name in SPLITS)
            ),
        }
        staging.write_report(manifest)
        staging.publish()
    for split, numbers in counts.items():
        text = ", ".join(f"{number:,} {unit}" for unit, number in numbers.items())
        print(f"{dest / split}.txt: {text}")


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
