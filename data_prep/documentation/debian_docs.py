"""Makes an English corpus of about ten million words from Debian's documentation.

The packages are linux-doc-6.1, python3.11-doc, postgresql-doc-15 and dict-gcide of
Debian 12, each at one version, compared with its SHA-256. apt-get downloads them, which
needs no root; those that it does not have come from Debian's snapshot archive. Or they
are taken from --from-dir, a folder with the four .deb files. Neither apt nor dpkg is
needed. Markup and listings are stripped; a paragraph that occurs again is kept once,
and one of more than 150 words becomes several lines of whole sentences.

A document is a file, a page, or the dictionary's entries that begin with the same four
letters. A hash of its name puts it into train, valid or test (2 % each for the last
two).

  --form text    as written, for --tokenizer sentencepiece
  --form words   words and punctuation set apart by spaces, for --tokenizer word

DIR gets train.txt, valid.txt and test.txt, with one paragraph a line and a blank line
between documents, and manifest.json with documents, counts and checksums. The same
packages give the same files.
"""

import argparse
import re

from data_prep.documentation.corpus import (
    Documents,
    divided,
    hashed_split,
    prepare_corpus,
)
from data_prep.documentation.debian_documents import PACKAGES, debian_documents
from data_prep.documentation.debian_packages import (
    PackageSource,
    add_packages,
    find_packages,
)
from data_prep.folders.command import add_destination, command

HELD_OUT_SHARE = 0.02
SALT = 1
_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*|[^\w\s]")


def words_apart(paragraph: str) -> str:
    """Words and single punctuation marks, with a space between any two."""
    return " ".join(_WORD.findall(paragraph))


def _collect(packages: PackageSource, form: str) -> dict[str, Documents]:
    with packages.unpacked() as folder:
        documents = debian_documents(folder)
    splits = divided(
        documents, lambda name: hashed_split(name, SALT, HELD_OUT_SHARE), "the packages"
    )
    if form == "words":
        for documents in splits.values():
            for name, paragraphs in documents.items():
                documents[name] = [words_apart(text) for text in paragraphs]
    return splits


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_destination(parser)
    parser.add_argument("--form", choices=["text", "words"], default="text")
    add_packages(parser)


def _prepare(options: argparse.Namespace) -> None:
    packages = find_packages(options, PACKAGES)
    settings = {
        "command": "debian_docs",
        "form": options.form,
        "packages": packages.identity,
    }
    prepare_corpus(
        options.dest,
        settings,
        options.overwrite,
        lambda: _collect(packages, options.form),
    )


main = command("debian_docs", __doc__, _add_options, _prepare)
