"""Text out of documentation's markup: reStructuredText, HTML, dictd.

Each function yields paragraphs, one line each. They keep lists, headings and tables'
words, and leave out code, so that what remains is mostly running text.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser

_ADORNMENT = re.compile(r"[\s=\-~^\"'`#*+.:_|]+")
_DIRECTIVE = re.compile(r"\.\.\s|\.\.$|:[\w -]+:(\s|$)|\|.*\||\+[-=+]+")
_ROLE = re.compile(r":[\w:+-]+:`~?!?([^`<]+?)(?:\s*<[^`>]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_*")
_LITERAL = re.compile(r"`{1,2}([^`]+)`{1,2}_*")
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,2}([^*\s][^*]*)\*{1,2}(?!\w)")
_BLANK_LINES = re.compile(r"\n[ \t]*\n")
_MIN_WORDS = 3
MAX_WORDS = 150


def restructured_text(text: str) -> Iterator[str]:
    """Paragraphs of reStructuredText, or of plain text laid out like it."""
    # code: literal blocks are indented after a paragraph that ends in two colons
    literal_indent = None
    for block in _BLANK_LINES.split(text.expandtabs()):
        lines = [line for line in block.splitlines() if line.strip()]
        if not lines:
            continue
        indent = len(lines[0]) - len(lines[0].lstrip())
        if literal_indent is not None:
            if indent > literal_indent:
                continue
            literal_indent = None
        if lines[-1].rstrip().endswith("::"):
            literal_indent = indent
        kept = [
            line.strip()
            for line in lines
            if not _ADORNMENT.fullmatch(line) and not _DIRECTIVE.match(line.strip())
        ]
        if any(line.startswith((">>>", "$ ", "#include")) for line in kept):
            continue
        yield from _sentences(_without_roles(" ".join(kept)))


def html(text: str) -> Iterator[str]:
    """Paragraphs of an HTML page, without its navigation and its listings."""
    parser = _Page()
    parser.feed(text)
    parser.close()
    for block in parser.blocks:
        yield from _sentences(block)


def dictionary_entry(text: str) -> Iterator[str]:
    """Paragraphs of an entry of the Collaborative International Dictionary."""
    for block in _BLANK_LINES.split(text):
        block = re.sub(r"\[\d{4} [\w ]+\]|\[[A-Z]\w+\.?\]|\[PJC\]", " ", block)
        block = re.sub(r"\\[^\\\n]*\\,?", ",", block)  # pronunciation
        block = re.sub(r"[{}]", "", block)
        yield from _sentences(block)


def _without_roles(text: str) -> str:
    for pattern in (_ROLE, _LINK, _LITERAL, _EMPHASIS):
        text = pattern.sub(r"\1", text)
    return re.sub(r"::(\s|$)", r":\1", text)


def _sentences(paragraph: str) -> Iterator[str]:
    """The paragraph in one line, or in several of whole sentences if it is long."""
    words = paragraph.split()
    if sum(word[0].isalpha() for word in words) < max(_MIN_WORDS, len(words) / 2):
        return
    start = 0
    while len(words) - start > MAX_WORDS:
        ends = (
            i + 1
            for i in range(start + MAX_WORDS - 1, start, -1)
            if words[i].endswith((".", "?", "!", ";"))
        )
        end = next(ends, start + MAX_WORDS)
        yield " ".join(words[start:end])
        start = end
    yield " ".join(words[start:])


class _Page(HTMLParser):
    """Collects text by block element."""

    BLOCKS = frozenset("p li dt dd h1 h2 h3 h4 h5 h6 div td th tr table dl ul".split())
    HIDDEN = frozenset(("script", "style", "pre", "head"))
    HIDDEN_CLASSES = frozenset(("navheader", "navfooter", "toc", "titlepage"))
    VOID = frozenset("area base br col hr img input link meta".split())

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self._current: list[str] = []
        self._hidden_depth = 0

    def handle_starttag(self, tag, attrs):
        if tag in self.VOID:
            return
        classes = (dict(attrs).get("class") or "").split()
        hides = tag in self.HIDDEN or self.HIDDEN_CLASSES.intersection(classes)
        if self._hidden_depth or hides:
            self._hidden_depth += 1
        if tag in self.BLOCKS:
            self._finish()

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        if self._hidden_depth:
            self._hidden_depth -= 1
        elif tag in self.BLOCKS:
            self._finish()

    def handle_data(self, data):
        if not self._hidden_depth:
            self._current.append(data)

    def close(self):
        super().close()
        self._finish()

    def _finish(self) -> None:
        text = " ".join("".join(self._current).split())
        if text:
            self.blocks.append(text)
        self._current = []
