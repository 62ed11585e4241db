"""Makes a classification problem of real text: sections of the Linux documentation.

An example is a paragraph of linux-doc-6.1 (Debian 12); its label is the section that
its file lies in, one of twelve: what the kernel's developers filed it under. The
package is pinned, and downloaded or taken from --from-dir, as in data_prep debian_docs.

Words that give the label away are taken out: the name of the section itself (scsi,
rcu, networking, filesystems, ...) and everything with a slash in it, such as paths. A
paragraph has 15 words or more after that, and occurs once. At most 60 paragraphs of a
document are kept (--paragraphs-per-document), evenly apart, so that no long one stands
for its section. A hash of the document's name puts all of it into train, dev or test
(12 % each for the last two).

DIR gets train.tsv, dev.tsv and test.tsv in GLUE's format (index, sentence, label) and
manifest.json with documents, counts and checksums. A model that was pre-trained on
data_prep debian_docs has read the text of all splits, though no label: say so beside
results, or pre-train on another text.
"""

import argparse
import re
from collections import Counter
from typing import Any

from data_prep.documentation.corpus import (
    Documents,
    divided,
    hashed_split,
    write_table,
)
from data_prep.documentation.debian_documents import linux_documents
from data_prep.documentation.debian_packages import (
    LINUX,
    PackageSource,
    add_packages,
    find_packages,
)
from data_prep.folders.command import add_destination, add_integer, command
from data_prep.folders.staging import Record, Work, publish
from fairseq_transnormer.data import MANIFEST

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
PARAGRAPHS_PER_DOCUMENT = 60
FILES = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}

Labelled = list[tuple[str, str]]


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


def collect(
    packages: PackageSource, most: int
) -> tuple[dict[str, Documents], dict[str, Labelled]]:
    """Documents and labelled paragraphs, at most ``most`` of a document, by split.

    Raises ValueError for a section that a split has none of.
    """
    with packages.unpacked() as folder:
        documents = {
            name: texts
            for name, texts in linux_documents(folder).items()
            if "/" in name and name.split("/")[0] in SECTIONS
        }
    splits = divided(
        documents,
        lambda name: hashed_split(name, SALT, HELD_OUT_SHARE),
        LINUX.name,
    )
    labelled = {
        split: labelled_paragraphs(each, most) for split, each in splits.items()
    }
    for split, examples in labelled.items():
        missing = set(SECTIONS) - {section for _, section in examples}
        if missing:
            raise ValueError(
                f"{LINUX.name}: no paragraph of section {min(missing)!r} for the "
                f"{split} split"
            )
    return splits, labelled


def _counts(examples: Labelled, documents: Documents) -> dict[str, Any]:
    labels = Counter(section for _, section in examples)
    return {
        "documents": len(documents),
        "examples": len(examples),
        "words": sum(len(text.split()) for text, _ in examples),
        "majority_share": round(max(labels.values()) / len(examples), 4),
        "labels": {section: labels[section] for section in SECTIONS},
    }


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_destination(parser)
    add_packages(parser)
    limits, option = (1, 1_000_000), "--paragraphs-per-document"
    add_integer(parser, option, limits, "at most", PARAGRAPHS_PER_DOCUMENT)


def _prepare(options: argparse.Namespace) -> None:
    most = options.paragraphs_per_document
    packages = find_packages(options, [LINUX])

    def make(work: Work) -> Record:
        documents, labelled = collect(packages, most)
        for split, name in FILES.items():
            rows = ((i, *row) for i, row in enumerate(labelled[split]))
            write_table(work.file(name), [("index", "sentence", "label"), *rows])
        return {
            "labels": list(SECTIONS),
            "splits": {s: _counts(labelled[s], documents[s]) for s in FILES},
            "documents": {split: list(documents[split]) for split in FILES},
        }

    settings = {
        "command": "documentation_topics",
        "packages": packages.identity,
        "paragraphs_per_document": most,
    }
    publish(options.dest, settings, MANIFEST, options.overwrite, make)


main = command("documentation_topics", __doc__, _add_options, _prepare)
