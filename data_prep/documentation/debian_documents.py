"""The documents in Debian's documentation packages."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from data_prep.documentation import markup
from data_prep.documentation.debian_packages import (
    DICTIONARY,
    LINUX,
    POSTGRESQL,
    PYTHON,
)
from data_prep.folders.downloads import unpacked

PACKAGES = [LINUX, PYTHON, POSTGRESQL, DICTIONARY]

# not English, or words of a schema rather than text
SKIPPED_FOLDERS = frozenset(("translations", "devicetree", "features"))
# The dictionary quotes a word in its neighbours' entries: what begins alike stays
# together.
PREFIX_LETTERS = 4

_ENTRY = re.compile(r"^(?=[A-Za-z][^\n]*\\[^\n]*\\)", re.MULTILINE)


def debian_documents(folder: Path) -> dict[str, list[str]]:
    """Paragraphs by document, of the packages unpacked in ``folder``.

    A document is a file, or the dictionary's entries that begin with the same letters.
    """
    readers = {
        LINUX: linux_documents,
        PYTHON: _python,
        POSTGRESQL: _postgresql,
        DICTIONARY: _dictionary,
    }
    documents: dict[str, list[str]] = {}
    for package, read in readers.items():
        found = read(folder)
        if not any(found.values()):
            raise ValueError(f"{folder}: no documentation of {package.name} in it")
        documents |= {f"{package.name}/{name}": texts for name, texts in found.items()}
    return documents


def linux_documents(folder: Path) -> dict[str, list[str]]:
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


def _python(folder: Path) -> dict[str, list[str]]:
    top = folder / PYTHON.documents
    return _read(top, top.rglob("*.rst.txt"), markup.restructured_text)


def _postgresql(folder: Path) -> dict[str, list[str]]:
    top = folder / POSTGRESQL.documents
    pages = (path for path in top.rglob("*.html") if path.stem != "bookindex")
    return _read(top, pages, markup.html)


def _read(top: Path, files, paragraphs) -> dict[str, list[str]]:
    from tqdm import tqdm

    return {
        str(path.relative_to(top)): list(paragraphs(_text(path)))
        for path in tqdm(sorted(files), unit=" files", desc=top.name, disable=None)
    }


def _dictionary(folder: Path) -> dict[str, list[str]]:
    path = folder / DICTIONARY.documents
    if not path.is_file():
        return {}
    documents: dict[str, list[str]] = defaultdict(list)
    for entry in _entries(_text(path)):
        letters = re.sub(r"[^a-z]", "", entry[:40].split("\\")[0].lower())
        documents[letters[:PREFIX_LETTERS]].extend(markup.dictionary_entry(entry))
    return documents


def _entries(text: str) -> Iterator[str]:
    # what stands in front of the first entry is the licence
    return iter(_ENTRY.split(text)[1:])


def _text(path: Path) -> str:
    # a few bytes of the dictionary are of another encoding
    return unpacked(path).decode("utf-8", errors="ignore")
