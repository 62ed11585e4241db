"""``data_prep debian_docs``: a corpus of Debian's documentation packages."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from ..folders.downloads import unpacked
from ..folders.options import Place
from . import markup
from .corpus import Documents, divided, prepare_corpus
from .debian_packages import (
    DICTIONARY,
    LINUX,
    POSTGRESQL,
    PYTHON,
    Origin,
    Packages,
    find_packages,
)

PACKAGES = [LINUX, PYTHON, POSTGRESQL, DICTIONARY]
HELD_OUT_SHARE = 0.02
SALT = 1
# not English, or words of a schema rather than text
SKIPPED_FOLDERS = frozenset(("translations", "devicetree", "features"))
# The dictionary quotes a word in its neighbours' entries: what begins alike stays
# together.
PREFIX_LETTERS = 4

_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*|[^\w\s]")
_ENTRY = re.compile(r"^(?=[A-Za-z][^\n]*\\[^\n]*\\)", re.MULTILINE)


def debian_docs(
    place: Place, origin: Origin, form: Literal["text", "words"] = "text"
) -> None:
    """Make an English corpus of about ten million words from Debian's documentation.

    The packages are linux-doc-6.1, python3.11-doc, postgresql-doc-15 and dict-gcide of
    Debian 12, each at one version, compared with its SHA-256. Markup and listings are
    removed, and repeated paragraphs are kept once. A paragraph of more than 150 words
    becomes several lines of whole sentences.

    A document is a file, a page, or the dictionary's entries that begin with the same
    four letters. A hash of its name puts it into train, valid or test (2 % each for the
    last two). DIR gets train.txt, valid.txt and test.txt, with one paragraph a line and
    a blank line between documents. The same packages give the same files.

    Args:
        form: text: as written, for --tokenizer sentencepiece; words: words and
            punctuation set apart by spaces, for --tokenizer word.
    """
    packages = find_packages(origin, PACKAGES)
    settings = {"command": "debian_docs", "form": form, "packages": packages.identity}
    prepare_corpus(place, settings, lambda: _collect(packages, form))


def _collect(packages: Packages, form: str) -> dict[str, Documents]:
    with packages.unpacked() as folder:
        documents = debian_documents(folder)
    splits = divided(documents, SALT, HELD_OUT_SHARE, "the packages")
    if form == "words":
        for documents in splits.values():
            for name, paragraphs in documents.items():
                # words and single punctuation marks
                apart = [" ".join(_WORD.findall(text)) for text in paragraphs]
                documents[name] = apart
    return splits


def debian_documents(folder: Path) -> Documents:
    """Paragraphs by document, of the packages unpacked in ``folder``.

    A document is a file, or the dictionary's entries that begin with the same letters.
    """
    readers = {
        LINUX: linux_documents,
        PYTHON: _python,
        POSTGRESQL: _postgresql,
        DICTIONARY: _dictionary,
    }
    documents: Documents = {}
    for package, read in readers.items():
        found = read(folder)
        if not any(found.values()):
            raise ValueError(f"{folder}: no documentation of {package.name} in it")
        documents |= {f"{package.name}/{name}": texts for name, texts in found.items()}
    return documents


def linux_documents(folder: Path) -> Documents:
    """Paragraphs by file of the Linux documentation unpacked in ``folder``."""
    top = folder / LINUX.documents
    files = [
        path
        for pattern in ("*.rst.gz", "*.txt.gz")
        for path in top.rglob(pattern)
        if not path.is_symlink()
        and not SKIPPED_FOLDERS.intersection(path.relative_to(top).parts)
    ]
    return _read(top, files, markup.restructured_text)


def _python(folder: Path) -> Documents:
    top = folder / PYTHON.documents
    return _read(top, top.rglob("*.rst.txt"), markup.restructured_text)


def _postgresql(folder: Path) -> Documents:
    top = folder / POSTGRESQL.documents
    pages = (path for path in top.rglob("*.html") if path.stem != "bookindex")
    return _read(top, pages, markup.html)


def _read(
    top: Path, files: Iterable[Path], paragraphs: Callable[[str], Iterator[str]]
) -> Documents:
    from tqdm import tqdm

    return {
        str(path.relative_to(top)): list(paragraphs(_text(path)))
        for path in tqdm(sorted(files), unit=" files", desc=top.name, disable=None)
    }


def _dictionary(folder: Path) -> Documents:
    path = folder / DICTIONARY.documents
    documents: Documents = defaultdict(list)
    # what stands in front of the first entry is the licence
    for entry in _ENTRY.split(_text(path) if path.is_file() else "")[1:]:
        letters = re.sub(r"[^a-z]", "", entry[:40].split("\\")[0].lower())
        documents[letters[:PREFIX_LETTERS]].extend(markup.dictionary_entry(entry))
    return documents


def _text(path: Path) -> str:
    # a few bytes of the dictionary are of another encoding
    return unpacked(path).decode("utf-8", errors="ignore")
