"""``data_prep debian_docs``: a corpus of Debian's documentation packages."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..folders.options import Place
from . import markup
from .corpus import Documents, divided, prepare_documents, write_texts
from .debian_packages import DICTIONARY, LINUX, POSTGRESQL, PYTHON, Origin, Package

HELD_OUT_SHARE = 0.02
SALT = 1
# The dictionary quotes a word in its neighbours' entries: what begins alike stays
# together.
PREFIX_LETTERS = 4

# names and texts of a package's files
Texts = Iterable[tuple[str, str]]

_ENTRY = re.compile(r"^(?=[A-Za-z][^\n]*\\[^\n]*\\)", re.MULTILINE)


def debian_docs(place: Place, origin: Origin) -> None:
    """Make an English corpus of about ten million words from Debian's documentation.

    The packages are linux-doc-6.1, python3.11-doc, postgresql-doc-15 and dict-gcide of
    Debian 12, each at one version, compared with its SHA-256. Markup and listings are
    removed, and repeated paragraphs are kept once. A paragraph of more than 150 words
    becomes several lines of whole sentences.

    A document is a file, a page, or the dictionary's entries that begin with the same
    four letters. A hash of its name puts it into train, valid or test (2 % each for the
    last two). DIR gets train.txt, valid.txt and test.txt, with one paragraph a line and
    a blank line between documents. The same packages give the same files.
    """
    settings: dict[str, Any] = {"command": "debian_docs", "form": "text"}
    settings["packages"] = origin.identity([*READERS])

    def collect() -> dict[str, Documents]:
        every: Documents = {}
        for package, read in READERS.items():
            found = read(origin.texts(package))
            if not any(found.values()):
                raise ValueError(f"{package.name}: no documentation in it")
            every |= {f"{package.name}/{name}": texts for name, texts in found.items()}
        return divided(every, SALT, HELD_OUT_SHARE, "Debian's packages")

    prepare_documents(place, settings, collect, write_texts)


def _pages(
    paragraphs: Callable[[str], Iterable[str]], skipped: set[str], texts: Texts
) -> Documents:
    """Paragraphs by file, of those with no ``skipped`` name on their path."""
    return {
        name: [*paragraphs(text)]
        for name, text in texts
        if skipped.isdisjoint(name.split("/"))
    }


def _dictionary(texts: Texts) -> Documents:
    documents: Documents = defaultdict(list)
    for _, text in texts:
        # what stands in front of the first entry is the licence
        for entry in _ENTRY.split(text)[1:]:
            letters = re.sub(r"[^a-z]", "", entry[:40].split("\\")[0].lower())
            documents[letters[:PREFIX_LETTERS]].extend(markup.dictionary_entry(entry))
    return documents


# not English, or words of a schema rather than text
_SKIPPED = {"translations", "devicetree", "features"}
linux_documents = partial(_pages, markup.restructured_text, _SKIPPED)
READERS: dict[Package, Callable[[Texts], Documents]] = {
    LINUX: linux_documents,
    PYTHON: partial(_pages, markup.restructured_text, set()),
    POSTGRESQL: partial(_pages, markup.html, {"bookindex.html"}),
    DICTIONARY: _dictionary,
}
