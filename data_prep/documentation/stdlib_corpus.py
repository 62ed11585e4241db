"""``data_prep stdlib_corpus``: a corpus of Python's own documentation."""

from __future__ import annotations

import platform
import sysconfig
from pathlib import Path

from ..folders.options import Place
from .corpus import divided, prepare_corpus
from .stdlib_documents import module_documents, topic_documents

HELD_OUT_SHARE = 0.05
# Of 20,000 numbers the one with which valid and test have many documents and 4.6 to
# 5.4 % of the text each in the libraries of Python 3.10, 3.11, 3.12 and 3.13.
SALT = 8837


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
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    prepare_corpus(
        place,
        {"command": "stdlib_corpus", "python": platform.python_version()},
        lambda: divided(
            module_documents(stdlib) | topic_documents(stdlib),
            SALT,
            HELD_OUT_SHARE,
            str(stdlib),
        ),
    )
