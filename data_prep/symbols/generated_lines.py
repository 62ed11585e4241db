"""Lines that are drawn from a seed, in three splits: what the generated tasks share."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from data_prep.folders.arguments import add_destination
from data_prep.folders.binary_folder import Recipe, Split, prepare_folder, symbol_recipe
from data_prep.folders.errors import InputError, run_command
from fairseq_transnormer.argument_types import integer_between, seed
from fairseq_transnormer.data import SPLITS

COUNTS = (100_000, 1000, 1000)
MAX_LINES = 10**8
# of all lines; WikiText-103 has 10**8
MAX_TOKENS = 10**10


def add_generation(parser: argparse.ArgumentParser) -> None:
    """``--dest``, ``--overwrite``, ``--seed`` and ``--counts``."""
    add_destination(parser)
    parser.add_argument(
        "--seed", type=seed, default=1, metavar="N", help="(default: 1)"
    )
    parser.add_argument(
        "--counts",
        type=integer_between(1, MAX_LINES),
        nargs=3,
        default=COUNTS,
        metavar=("TRAIN", "VALID", "TEST"),
        help="lines of each split (default: %(default)s)",
    )


def generated_recipe(
    data: str,
    options: argparse.Namespace,
    law: Mapping[str, Any],
    symbols: Iterable[str],
    lines: Callable[..., Iterator[str]],
) -> Recipe:
    """Splits of different random numbers, each the same from the same seed.

    Args:
        data: name of the task.
        options: those of ``add_generation``.
        law: what lines are drawn from; keyword arguments of ``lines``.
        symbols: the dictionary.
        lines: (count, seed=..., **law) -> that many.
    """
    counts = dict(zip(SPLITS, options.counts, strict=True))
    splits = [
        Split(
            split,
            lambda number=number, split=split: lines(
                counts[split], **law, seed=[options.seed, number]
            ),
            counts[split],
        )
        for number, split in enumerate(SPLITS)
    ]
    settings = {"data": data, "seed": options.seed, "counts": counts, **law}
    return symbol_recipe(settings=settings, splits=splits, symbols=symbols)


def check_total(options: argparse.Namespace, length: str, tokens: int) -> None:
    """Refuse more lines than any disk should hold.

    Args:
        options: those of ``add_generation``.
        length: the option that makes lines long, with its value.
        tokens: of the longest line.

    Raises:
        InputError: there are more than MAX_TOKENS.
    """
    most = MAX_TOKENS // tokens
    if sum(options.counts) > most:
        raise InputError(
            f"--counts {' '.join(map(str, options.counts))}; allowed with {length}: "
            f"{most} lines together, {MAX_TOKENS} symbols"
        )


def prepare(
    parser: argparse.ArgumentParser,
    arguments: list[str] | None,
    recipe: Callable[[argparse.Namespace], Recipe],
) -> int:
    """The command; returns the exit code."""
    options = parser.parse_args(arguments)
    return run_command(
        parser.prog,
        lambda: prepare_folder(
            options.dest, recipe(options), workers=1, overwrite=options.overwrite
        ),
    )
