"""The documentation in the source files of Python's standard library.

Read by parsing, never by importing: importing has side effects (``antigravity``
opens a browser) and fails for modules of other platforms.
"""

import ast
import importlib.util
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .prose import comparison_key, paragraphs

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


def module_documents(stdlib: Path) -> dict[str, list[str]]:
    """Paragraphs by document: one for each top-level module or package."""
    documents = _documents(stdlib, stdlib, lambda path: document_name(path.parts[0]))
    if not documents:
        raise ValueError(
            f"{stdlib}: no source files of the standard library: this Python was "
            "installed without them; run another one"
        )
    return documents


def package_documents(stdlib: Path, packages: Sequence[str]) -> dict[str, list[str]]:
    """Paragraphs by document: one for each file of these packages, as email/parser.py.

    Raises ValueError where a package has none.
    """
    documents: dict[str, list[str]] = {}
    for package in packages:
        found = _documents(stdlib, stdlib / package, Path.as_posix)
        if not found:
            raise ValueError(f"{stdlib / package}: no Python source file with text")
        documents |= found
    return documents


def _documents(
    stdlib: Path, folder: Path, name: Callable[[Path], str]
) -> dict[str, list[str]]:
    """Paragraphs of a folder's source files, by the name of their place in stdlib."""
    from tqdm import tqdm

    documents: dict[str, list[str]] = defaultdict(list)
    for path in tqdm(_source_files(folder), unit=" files", disable=None):
        for text in _documentation(path):
            documents[name(path.relative_to(stdlib))].extend(paragraphs(text))
    return documents


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
    path = stdlib / "pydoc_data" / "topics.py"
    if not path.is_file():
        raise ValueError(
            f"{path}: missing; it comes with every full Python installation"
        )
    topics = {
        name: list(paragraphs(text)) for name, text in sorted(_topics(path).items())
    }
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


def _topics(path: Path) -> dict[str, str]:
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            return ast.literal_eval(node.value)
    raise ValueError(f"{path}: holds no topics; expected 'topics = {{...}}'")


def _source_files(stdlib: Path) -> list[Path]:
    found = []
    for folder, subfolders, files in os.walk(stdlib):
        # Not entered at all: site-packages can hold many thousand files.
        subfolders[:] = sorted(
            name
            for name in subfolders
            if name not in SKIPPED_FOLDERS and not name.startswith("config-")
        )
        found += [Path(folder, file) for file in sorted(files) if file.endswith(".py")]
    return sorted(found)


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
