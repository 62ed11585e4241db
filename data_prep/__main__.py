"""``python -m data_prep COMMAND``: every command that prepares data."""

import sys

from fairseq_transnormer.cli import Subcommand, run

# folder, file, function, summary
_TABLE = (
    ("own_text", "text", "text", "your own text files"),
    ("own_text", "split_text", "split_text", "your text as train, valid and test"),
    ("own_text", "plan", "plan", "sizes of a model of your own text, by a rule"),
    ("wikitext", "wikitext103", "wikitext103", "WikiText-103, by words or GPT-2's BPE"),
    ("labelled_texts", "glue", "glue", "GLUE's problems"),
    ("labelled_texts", "classification", "classification", "your own labelled texts"),
    ("long_range_arena", "lra", "", "the Long-Range Arena"),
    (
        *("long_range_arena", "synthetic_lra", "synthetic_lra"),
        "small synthetic texts and images in the arena's format",
    ),
    (
        *("documentation", "stdlib_corpus", "stdlib_corpus"),
        "a corpus of the standard library's documentation",
    ),
    (
        *("documentation", "stdlib_problems", "stdlib_problems"),
        "problems in GLUE's format, of the same documentation",
    ),
    (
        *("documentation", "debian_docs", "debian_docs"),
        "a corpus of Debian's documentation",
    ),
    (
        *("documentation", "documentation_topics", "documentation_topics"),
        "paragraphs of the kernel's documentation, labelled",
    ),
    ("symbols", "series", "copy_task", "series to be repeated"),
    ("symbols", "series", "recall", "values of keys to be recalled"),
    ("symbols", "images", "digits", "images of digits as pixels"),
    ("symbols", "images", "cifar10", "CIFAR-10's images as pixels"),
    ("folders", "verify", "verify", "check a folder of prepared data"),
)
COMMANDS = {
    function or file: Subcommand(
        f"data_prep.{folder}.{file}" + (f":{function}" if function else ""), summary
    )
    for folder, file, function, summary in _TABLE
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    return run(
        "python -m data_prep",
        "Makes the folders that training reads; data_prep/README.md explains them.",
        COMMANDS,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
