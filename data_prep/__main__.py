"""``python -m data_prep COMMAND``: every command that prepares data."""

import sys

from fairseq_transnormer.cli import Subcommand, run

# module, and function unless it has the module's name: summary
_TABLE = {
    "own_text.text": "your own text files",
    "own_text.split_text": "your own text files as train, valid and test",
    "own_text.plan": "sizes of a model of your own text, by a rule",
    "wikitext.wikitext103": "WikiText-103, by words or by GPT-2's BPE",
    "labelled_texts.glue": "GLUE's problems",
    "labelled_texts.classification": "your own labelled texts",
    "long_range_arena.lra": "the Long-Range Arena",
    "long_range_arena.synthetic_lra": "small synthetic data in the arena's format",
    "documentation.stdlib_corpus": "a corpus of the standard library's documentation",
    "documentation.stdlib_problems": "problems in GLUE's format, of the same",
    "documentation.debian_docs": "a corpus of Debian's documentation",
    "documentation.documentation_topics": "the kernel's documentation, labelled",
    "symbols.series:copy_task": "series to be repeated",
    "symbols.series:recall": "values of keys to be recalled",
    "symbols.images:digits": "images of digits as pixels",
    "symbols.images:cifar10": "CIFAR-10's images as pixels",
    "folders.verify": "check a folder of prepared data",
}


def _commands() -> dict[str, Subcommand]:
    commands = {}
    for path, summary in _TABLE.items():
        module, _, function = path.partition(":")
        name = function or module.split(".")[1]
        # the arena's data sets are commands of their own
        called = "" if name == "lra" else f":{name}"
        commands[name] = Subcommand(f"data_prep.{module}{called}", summary)
    return commands


COMMANDS = _commands()


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
