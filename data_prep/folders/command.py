"""What the commands share: their parser, their options, and how they end."""

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from fairseq_transnormer import cli
from fairseq_transnormer.argument_types import integer_between

MAX_WORKERS = 1024

Command = Callable[[list[str] | None], int]


def command(
    name: str,
    description: str | None,
    add_options: Callable[[argparse.ArgumentParser], None],
    work: Callable[[argparse.Namespace], None],
    failure: int = 2,
) -> Command:
    """A command: from the words of its command line to its exit code.

    Args:
        name: of ``python -m data_prep NAME``.
        description: shown by ``--help`` as it is written.
        add_options: adds them to the parser.
        work: does it; ValueError and OSError end in one line on stderr.
        failure: the exit code after such a line.
    """

    def main(arguments: list[str] | None = None) -> int:
        parser = cli.command_parser(
            f"data_prep {name}", description, allow_abbrev=False
        )
        add_options(parser)
        options = parser.parse_args(arguments)
        status = cli.run_command(parser.prog, lambda: work(options))
        return failure if status == 2 else status

    return main


def add_destination(parser: argparse.ArgumentParser) -> None:
    """``--dest`` and ``--overwrite``."""
    parser.add_argument(
        "--dest",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder to make; it appears only when it is complete, where a link points "
        "if DIR is one",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the data that an earlier run made in DIR; files of your own in "
        "it, and files that were changed, are refused",
    )


def add_source(parser: argparse.ArgumentParser, layouts: str, **options) -> None:
    """``--from-dir``; ``layouts`` says what is accepted."""
    parser.add_argument(
        "--from-dir", type=Path, metavar="SRC", help=f"local copy: {layouts}", **options
    )


def add_other_sizes(parser: argparse.ArgumentParser, sizes: str) -> None:
    """``--allow-other-sizes``; ``sizes`` says what is checked without it."""
    parser.add_argument(
        "--allow-other-sizes",
        action="store_true",
        help=f"for a cut-down copy: do not insist on {sizes}",
    )


def add_integer(
    parser: argparse.ArgumentParser,
    name: str,
    limits: tuple[int, int],
    text: str,
    default: int | None = None,
) -> None:
    """An option of an integer; the help shows its default, if it has one."""
    shown = "" if default is None else f" (default: {default})"
    parser.add_argument(
        name,
        type=integer_between(*limits),
        default=default,
        metavar="N",
        help=f"{text}{shown}",
    )


def add_seed(parser: argparse.ArgumentParser, text: str, default: int | None) -> None:
    """``--seed``."""
    add_integer(parser, "--seed", (0, 2**63 - 1), text, default)


def add_counts(
    parser: argparse.ArgumentParser, default: tuple[int, ...] | None, text: str
) -> None:
    """``--counts``, of the three splits."""
    parser.add_argument(
        "--counts",
        type=integer_between(1, 10**8),
        nargs=3,
        default=default,
        metavar=("TRAIN", "VALID", "TEST"),
        help=text,
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """``--workers``, by default one per core this process may use."""
    add_integer(
        parser, "--workers", (1, MAX_WORKERS), "processes that work", usable_cores()
    )


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def refuse_given(
    options: argparse.Namespace, names: Iterable[str], allowed: str
) -> None:
    """Raises ValueError for the first option of ``names`` that is not None."""
    for name in names:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')}: allowed {allowed} only")
