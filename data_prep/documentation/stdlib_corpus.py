"""``data_prep stdlib_corpus``: a corpus of Python's own documentation.

The source files of the standard library are parsed, never imported: importing has side
effects (``antigravity`` opens a browser) and fails for modules of other platforms.
"""

from __future__ import annotations

import ast
import importlib.util
import platform
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..folders.options import Place
from .corpus import Documents, divided, prepare_documents, write_texts
from .prose import comparison_key, paragraphs

HELD_OUT_SHARE = 0.05
# Of 20,000 numbers the one with which valid and test have many documents and 4.6 to
# 5.4 % of the text each in the libraries of Python 3.10, 3.11, 3.12 and 3.13.
SALT = 8837
# Tests and applications with text that is data rather than documentation, what pip
# put there, and the topics, which are read separately.
SKIPPED_FOLDERS = frozenset(
    """test tests idle_test idlelib lib2to3 turtledemo site-packages dist-packages
    _bundled __pycache__ pydoc_data __phello__""".split()
)
# Python and C forms of one module, and modules that document the same functions.
SAME_DOCUMENT = {
    "genericpath": "path",
    "ntpath": "path",
    "posixpath": "path",
    "collections_abc": "collections",
    "sre_compile": "re",
    "sre_constants": "re",
    "sre_parse": "re",
    "asyncore": "asynchat",
    "dummy_thread": "threading",
    "cProfile": "profile",
    "bootsubprocess": "subprocess",
    "imp": "importlib",
}
MIN_COMMENT_LINES = 2


def stdlib_corpus(place: Place) -> None:
    """Make a small English corpus from the documentation of Python's standard library.

    For machines without data: it needs nothing but the running Python's own source
    files. The text is their docstrings, their comments of two lines and more, and the
    topics of pydoc. They are parsed; no module is imported. Code, tables and doctests
    are removed, and repeated paragraphs are kept once.

    A document is a top-level module or package, or the topics that quote one another. A
    hash of its name puts it into train, valid or test, about 5 % each for the last two.
    It is in the same split with every version of Python.
    DIR gets train.txt, valid.txt and test.txt, with one paragraph a line and a blank
    line between documents.
    """
    settings = {"command": "stdlib_corpus", "python": platform.python_version()}
    stdlib = Path(sysconfig.get_paths()["stdlib"])

    def collect() -> dict[str, Documents]:
        documents = module_documents(stdlib) | topic_documents(stdlib)
        return divided(documents, SALT, HELD_OUT_SHARE, str(stdlib))

    prepare_documents(place, settings, collect, write_texts)


def module_documents(stdlib: Path) -> dict[str, list[str]]:
    """Paragraphs by document: one for each top-level module or package."""
    return _documents(stdlib, "", lambda path: document_name(path.parts[0]))


def package_documents(stdlib: Path, packages: Sequence[str]) -> dict[str, list[str]]:
    """Paragraphs by document: one for each file of these packages."""
    documents: dict[str, list[str]] = {}
    for package in packages:
        documents |= _documents(stdlib, package, Path.as_posix)
    return documents


def _documents(
    stdlib: Path, folder: str, name: Callable[[Path], str]
) -> dict[str, list[str]]:
    """Paragraphs of a folder's source files, by the name of their place in stdlib."""
    from tqdm import tqdm

    places = (path.relative_to(stdlib) for path in (stdlib / folder).rglob("*.py"))
    kept = sorted(place for place in places if not _is_skipped(place.parts[:-1]))
    documents: dict[str, list[str]] = defaultdict(list)
    for place in tqdm(kept, unit=" files", disable=None):
        for text in _documentation(stdlib / place):
            documents[name(place)].extend(paragraphs(text))
    return documents


def _is_skipped(folders: tuple[str, ...]) -> bool:
    builds = any(name.startswith("config-") for name in folders)
    return builds or not SKIPPED_FOLDERS.isdisjoint(folders)


def document_name(top_level: str) -> str:
    """``_pydecimal.py`` and ``decimal.py`` are one document: ``decimal``."""
    name = top_level.removesuffix(".py").lstrip("_")
    name = name[2:] if name in ("pydecimal", "pyio", "pydatetime", "pylong") else name
    return SAME_DOCUMENT.get(name, name)


def topic_documents(stdlib: Path) -> dict[str, list[str]]:
    """Paragraphs of pydoc's topics by document.

    Topics that quote one another stay together, under the first one's name: pydoc
    repeats whole sections of the language reference in several topics.
    """
    source = (stdlib / "pydoc_data" / "topics.py").read_text("utf-8")
    # topics = {...} is all that it has
    texts_of = ast.literal_eval(source[source.index("{") :])
    topics = {name: list(paragraphs(texts_of[name])) for name in sorted(texts_of)}
    representative = {name: name for name in topics}

    def first(name: str) -> str:
        while representative[name] != name:
            name = representative[name]
        return name

    seen: dict[str, str] = {}
    for name, texts in topics.items():
        for text in texts:
            earlier = first(seen.setdefault(comparison_key(text), name))
            low, high = sorted((earlier, first(name)))
            representative[high] = low
    documents: dict[str, list[str]] = defaultdict(list)
    for name, texts in topics.items():
        documents[f"topic:{first(name)}"].extend(texts)
    return documents


def _documentation(path: Path) -> Iterator[str]:
    """Docstrings and block comments in the order of the file."""
    try:
        source = importlib.util.decode_source(path.read_bytes())
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return  # deliberately broken or of another encoding: no documentation
    texts = _docstrings(nodes) + _block_comments(source, nodes)
    yield from (text for _, text in sorted(texts))


def _docstrings(nodes: list[ast.AST]) -> list[tuple[int, str]]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [
        (node.body[0].lineno, docstring)
        for node in nodes
        if isinstance(node, documented) and (docstring := ast.get_docstring(node))
    ]


def _block_comments(source: str, nodes: list[ast.AST]) -> list[tuple[int, str]]:
    """Comments of whole lines, each with the number of its first line."""
    in_strings: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr):
            in_strings.update(range(node.lineno + 1, node.end_lineno + 1))
    blocks: list[tuple[int, list[str]]] = []
    last_line = -1
    for number, line in enumerate(source.split("\n"), start=1):
        comment = line.strip()
        if not comment.startswith("#") or number in in_strings:
            continue
        if number == last_line + 1:
            blocks[-1][1].append(comment.lstrip("#!"))
        else:
            blocks.append((number, [comment.lstrip("#!")]))
        last_line = number
    return [
        (start, "\n".join(lines))
        for start, lines in blocks
        if len(lines) >= MIN_COMMENT_LINES
    ]
