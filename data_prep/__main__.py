"""``python -m data_prep COMMAND``: every command that prepares data."""

import re
import sys

from fairseq_transnormer.cli import Subcommand, run

# a command's module and function: its summary
_TABLE = {
    "own_text.text:text": "your own text files",
    "own_text.split_text:split_text": "your own text files as train, valid and test",
    "own_text.plan:plan": "sizes of a model of your own text, by a rule",
    "wikitext.wikitext103:wikitext103": "WikiText-103, by words or by GPT-2's BPE",
    "labelled_texts.glue:glue": "GLUE's problems",
    "labelled_texts.classification:classification": "your own labelled texts",
    # its data sets are commands of their own
    "long_range_arena.lra": "the Long-Range Arena",
    "long_range_arena.synthetic_lra:synthetic_lra": "synthetic data in its format",
    "documentation.stdlib_corpus:stdlib_corpus": "a corpus of Python's documentation",
    "documentation.stdlib_problems:stdlib_problems": "problems of it, in GLUE's format",
    "documentation.debian_docs:debian_docs": "a corpus of Debian's documentation",
    "documentation.documentation_topics:documentation_topics": "Linux's, labelled",
    "symbols.series:copy_task": "series to be repeated",
    "symbols.series:recall": "values of keys to be recalled",
    "symbols.images:digits": "images of digits as pixels",
    "folders.staging:verify": "check a folder of prepared data",
}
COMMANDS = {
    re.split("[.:]", path)[-1]: Subcommand(f"data_prep.{path}", summary)
    for path, summary in _TABLE.items()
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    return run(
        "python -m data_prep",
        "Makes the folders that training reads; docs/data.md explains them.",
        COMMANDS,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
