"""``python -m data_prep COMMAND``: every command that prepares data."""

import sys

from fairseq_transnormer.cli import Subcommand, run

COMMANDS = {
    "text": Subcommand("data_prep.own_text.text", "your own text files"),
    "split_text": Subcommand(
        "data_prep.own_text.split_text", "your own text files as train, valid and test"
    ),
    "plan": Subcommand(
        "data_prep.own_text.plan", "sizes of a model of your own text, by a rule"
    ),
    "wikitext103": Subcommand(
        "data_prep.wikitext.wikitext103", "WikiText-103, by words or by GPT-2's BPE"
    ),
    "glue": Subcommand("data_prep.labelled_texts.glue", "GLUE's problems"),
    "classification": Subcommand(
        "data_prep.labelled_texts.classification", "your own labelled texts"
    ),
    "lra": Subcommand("data_prep.long_range_arena.lra", "the Long-Range Arena"),
    "synthetic_lra": Subcommand(
        "data_prep.long_range_arena.synthetic_lra",
        "small synthetic texts and images in the arena's format",
    ),
    "stdlib_corpus": Subcommand(
        "data_prep.documentation.stdlib_corpus",
        "a corpus of the standard library's documentation",
    ),
    "stdlib_problems": Subcommand(
        "data_prep.documentation.stdlib_problems",
        "problems in GLUE's format, of the same documentation",
    ),
    "debian_docs": Subcommand(
        "data_prep.documentation.debian_docs", "a corpus of Debian's documentation"
    ),
    "documentation_topics": Subcommand(
        "data_prep.documentation.documentation_topics",
        "paragraphs of the kernel's documentation, labelled",
    ),
    "copy_task": Subcommand("data_prep.symbols.copy_task", "series to be repeated"),
    "recall": Subcommand("data_prep.symbols.recall", "values of keys to be recalled"),
    "digits": Subcommand("data_prep.symbols.digits", "images of digits as pixels"),
    "cifar10": Subcommand("data_prep.symbols.cifar10", "CIFAR-10's images as pixels"),
    "verify": Subcommand("data_prep.folders.verify", "check a folder of prepared data"),
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
