"""English prose out of documentation text: paragraphs in, sentences out.

Documentation mixes sentences with code, doctests, tables and grammar rules. What
is kept here is judged by the words alone (see ``is_prose``), since markup is used
too loosely in docstrings to be a guide.
"""

import re
from collections.abc import Iterator

# Function words: about four in ten words of running English, next to none of code.
FUNCTION_WORDS = frozenset(
    """a about after all also an and any are as at be been before between but by can
    cannot do does each either else even every first for from has have how if in into
    is it its itself may more most must neither no nor not of off on once one only or
    other otherwise our out over same should since so some such than that the their
    them then there these they this those through to two under unless until up use
    used uses using was we were what when where whether which while who whose why will
    with within without would you your""".split()
)
MIN_WORDS = 5
MIN_PLAIN_SHARE = 0.72
MIN_FUNCTION_SHARE = 0.2

_BLANK_LINES = re.compile(r"\n[ \t]*\n")
_PLAIN_WORD = re.compile(r"[\"'(\[“‘]*[A-Za-z]+(?:['’/-][A-Za-z]+)*[\"')\]”’.,;:!?]*")
_LIST_ITEM = re.compile(
    r"\s*(?:[-*+•o]|\(?\d{1,2}[.)]|:\w+[^:]*:|@\w+ \w+:|\w[\w.*, ]{0,30}? --?)\s+(?=\S)"
)
_COLUMNS = re.compile(r"[^\s.!?:]\s{2,}\S|\s\|\s|\|\s*$|^\s*[+|=-]{3}")
_REMARK = re.compile(r"^(?:XXX|TODO|FIXME)\b(?:\(\w+\))?\W*")
_LEGAL = re.compile(r"copyright|licen[cs]e|warrant|all rights reserved", re.IGNORECASE)
_CODE_SIGN = re.compile(
    r"::=|->|=>|>>>|==|\+=|\w=\w|\w\(\w*\)\.|[{}<>|\\;]|\s=\s|__\w+__"
)


def paragraphs(text: str) -> Iterator[str]:
    """The prose paragraphs of ``text``, each on one line; items of a list singly."""
    for block in _BLANK_LINES.split(text.expandtabs()):
        lines = block.splitlines()
        if any(line.lstrip().startswith((">>>", "...", "$ ")) for line in lines):
            continue
        if sum(bool(_COLUMNS.search(line.strip())) for line in lines) * 3 > len(lines):
            continue
        for item in _items(lines):
            item = _REMARK.sub("", _without_markup(" ".join(item.split())))
            if is_prose(item):
                yield item


def is_prose(text: str) -> bool:
    """Whether ``text`` reads as English sentences, judged by its words."""
    words = text.split()
    if len(words) < MIN_WORDS or not text[0].isalpha() or _LEGAL.search(text):
        return False
    if text.count("(") != text.count(")") or text.count('"') % 2:
        return False
    plain = sum(bool(_PLAIN_WORD.fullmatch(word)) for word in words)
    function = sum(
        word.strip(".,;:!?\"'()").lower() in FUNCTION_WORDS for word in words
    )
    return (
        plain >= MIN_PLAIN_SHARE * len(words)
        and function >= MIN_FUNCTION_SHARE * len(words)
        and len(_CODE_SIGN.findall(text)) * 12 <= len(words)
    )


def comparison_key(paragraph: str) -> str:
    """Equal for paragraphs that differ in case, spacing or punctuation only."""
    return " ".join(re.findall(r"\w+", paragraph.lower()))


def _items(lines: list[str]) -> Iterator[str]:
    """Joins lines to paragraphs; a list marker starts a new one and is dropped."""
    current: list[str] = []
    for line in lines:
        marker = _LIST_ITEM.match(line)
        if marker and current:
            yield " ".join(current)
            current = []
        current.append(line[marker.end() :] if marker else line)
    yield " ".join(current)


def _without_markup(text: str) -> str:
    text = re.sub(r":[\w:]+:`~?([^`<]+?)(?:\s*<[^`>]*>)?`", r"\1", text)  # roles
    text = re.sub(r"`{1,2}([^`']+)[`']{1,2}", r"\1", text)
    text = re.sub(
        r"\*\*([^*\s][^*]*)\*\*|(?<!\w)\*([^*\s][^*]*)\*(?!\w)", r"\1\2", text
    )
    return re.sub(r"::$", ":", text).strip()
