"""``data_prep documentation_topics``: a classification problem of real text."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import Any

from ..folders.options import Place, at_least
from ..folders.staging import Record, Work
from .corpus import Documents, divided, prepare_documents, write_table
from .debian_docs import linux_documents
from .debian_packages import LINUX, Origin

# the package's large sections whose subject is not the machine or the process
SECTIONS = (
    *("RCU", "admin-guide", "core-api", "driver-api", "filesystems", "hwmon"),
    *("networking", "scsi", "sound", "trace", "userspace-api", "virt"),
)
HELD_OUT_SHARE = 0.12
# Of the first 100 numbers the one with which each section has 6 to 18 % of its examples
# in valid and in test.
SALT = 91
MIN_WORDS = 15
FILES = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}

Labelled = list[tuple[str, str]]


def documentation_topics(
    place: Place, origin: Origin, paragraphs_per_document: int = 60
) -> None:
    """Make a classification problem of real text: sections of the Linux documentation.

    An example is a paragraph of linux-doc-6.1 (Debian 12). Its label is the section of
    its file, one of twelve that the kernel's developers chose.

    Words that give the label away are removed: the name of the paragraph's section
    (scsi, rcu, networking, ...) and words with a slash, such as paths. Names of other
    sections stay. A paragraph then has 15 words or more; before, it occurred once. A
    hash of the document's name puts all of it into train, dev or test (12 % each for
    the last two).

    DIR gets train.tsv, dev.tsv and test.tsv in GLUE's format (index, sentence, label).
    A model that was pre-trained on data_prep debian_docs has read the text of all
    splits, but no label. State this with results, or pre-train on another text.

    Args:
        paragraphs_per_document: that are kept at most, evenly apart, so that no long
            one stands for its section.
    """
    at_least(1, paragraphs_per_document=paragraphs_per_document)

    settings = {
        "command": "documentation_topics",
        "packages": origin.identity([LINUX]),
        "paragraphs_per_document": paragraphs_per_document,
    }
    write = partial(_write, paragraphs_per_document)
    prepare_documents(place, settings, partial(_collect, origin), write)


def _collect(origin: Origin) -> dict[str, Documents]:
    found = linux_documents(origin.texts(LINUX))
    sections = tuple(f"{section}/" for section in SECTIONS)
    kept = {name: each for name, each in found.items() if name.startswith(sections)}
    return divided(kept, SALT, HELD_OUT_SHARE, LINUX.name)


def _write(most: int, work: Work, splits: dict[str, Documents]) -> Record:
    """The tables; ValueError for a section that a split has none of."""
    counts = {}
    for split, documents in splits.items():
        examples = labelled_paragraphs(documents, most)
        missing = set(SECTIONS) - {section for _, section in examples}
        if missing:
            raise ValueError(
                f"{LINUX.name}: no paragraph of section {min(missing)!r} for the "
                f"{split} split"
            )
        rows = ((i, *row) for i, row in enumerate(examples))
        header = ("index", "sentence", "label")
        write_table(work.file(FILES[split]), [header, *rows])
        counts[split] = _counts(examples, documents)
    return {"labels": list(SECTIONS), "splits": counts}


def without_giveaways(paragraph: str, section: str) -> str:
    """``paragraph`` without the section's name and without words that have a slash."""
    name = re.escape(section.rstrip("s")).replace(r"\-", r"[\s_-]?")
    text = re.sub(r"\S*/\S*", " ", paragraph)
    text = re.sub(rf"(?i)\b{name}s?\b", " ", text)
    return " ".join(text.split())


def labelled_paragraphs(documents: Documents, most: int) -> Labelled:
    """(paragraph, section), at most ``most`` of each of the sections' documents."""
    found: Labelled = []
    for name, paragraphs in sorted(documents.items()):
        section = name.split("/")[0]
        texts = [without_giveaways(text, section) for text in paragraphs]
        kept = [text for text in texts if len(text.split()) >= MIN_WORDS]
        step = max(1, len(kept) / most)
        count = min(len(kept), most)
        found += [(kept[int(place * step)], section) for place in range(count)]
    return found


def _counts(examples: Labelled, documents: Documents) -> dict[str, Any]:
    labels = Counter(section for _, section in examples)
    return {
        "documents": len(documents),
        "examples": len(examples),
        "words": sum(len(text.split()) for text, _ in examples),
        "majority_share": round(max(labels.values()) / len(examples), 4),
        "labels": {section: labels[section] for section in SECTIONS},
    }
