"""``data_prep debian_docs``: a corpus of Debian's documentation packages."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from ..folders.options import Place
from . import markup
from .corpus import Documents, divided, prepare_corpus
from .debian_packages import DICTIONARY, LINUX, POSTGRESQL, PYTHON, Origin, Package

HELD_OUT_SHARE = 0.02
SALT = 1
# not English, or words of a schema rather than text
SKIPPED_FOLDERS = frozenset(("translations", "devicetree", "features"))
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
    prepare_corpus(
        place,
        {
            "command": "debian_docs",
            "form": "text",
            "packages": origin.identity([*READERS]),
        },
        lambda: divided(
            debian_documents(origin), SALT, HELD_OUT_SHARE, "Debian's packages"
        ),
    )


def debian_documents(origin: Origin) -> Documents:
    """Paragraphs by document; ValueError for a package that has none."""
    documents: Documents = {}
    for package, read in READERS.items():
        found = read(origin.texts(package))
        if not any(found.values()):
            raise ValueError(f"{package.name}: no documentation in it")
        documents |= {f"{package.name}/{name}": texts for name, texts in found.items()}
    return documents


def linux_documents(texts: Texts) -> Documents:
    """Paragraphs by file of the Linux documentation."""
    return {
        name: list(markup.restructured_text(text))
        for name, text in texts
        if not SKIPPED_FOLDERS.intersection(name.split("/"))
    }


def _python(texts: Texts) -> Documents:
    return {name: list(markup.restructured_text(text)) for name, text in texts}


def _postgresql(texts: Texts) -> Documents:
    return {
        name: list(markup.html(text))
        for name, text in texts
        if name != "bookindex.html"
    }


def _dictionary(texts: Texts) -> Documents:
    documents: Documents = defaultdict(list)
    for _, text in texts:
        # what stands in front of the first entry is the licence
        for entry in _ENTRY.split(text)[1:]:
            letters = re.sub(r"[^a-z]", "", entry[:40].split("\\")[0].lower())
            documents[letters[:PREFIX_LETTERS]].extend(markup.dictionary_entry(entry))
    return documents


READERS: dict[Package, Callable[[Texts], Documents]] = {
    LINUX: linux_documents,
    PYTHON: _python,
    POSTGRESQL: _postgresql,
    DICTIONARY: _dictionary,
}
