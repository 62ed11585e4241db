"""The commands of data_prep as functions of their words, and what they made."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from data_prep.__main__ import main


def command(name: str) -> Callable[[Sequence[object]], int]:
    """The exit code of the command with these words."""

    def run(words: Sequence[object]) -> int:
        return main([name, *map(str, words)])

    run.__name__ = name
    return run


classification = command("classification")
copy_task = command("copy_task")
debian_docs = command("debian_docs")
digits = command("digits")
documentation_topics = command("documentation_topics")
glue = command("glue")
lra = command("lra")
plan = command("plan")
recall = command("recall")
split_text = command("split_text")
stdlib_corpus = command("stdlib_corpus")
stdlib_problems = command("stdlib_problems")
synthetic_lra = command("synthetic_lra")
text = command("text")
verify = command("verify")
wikitext103 = command("wikitext103")


def contents(folder: Path) -> dict[str, bytes | str]:
    """Every file and link below ``folder``."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found
