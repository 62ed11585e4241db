"""Lines that are drawn from a seed, in three splits: what the generated tasks share."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from data_prep.folders.binary_folder import Split, prepare_folder, symbol_recipe
from data_prep.folders.command import add_counts, add_destination, add_seed
from fairseq_transnormer.data import SPLITS

COUNTS = (100_000, 1000, 1000)
# of all lines; WikiText-103 has 10**8
MAX_TOKENS = 10**10


def add_generation(parser: argparse.ArgumentParser) -> None:
    """``--dest``, ``--overwrite``, ``--seed`` and ``--counts``."""
    add_destination(parser)
    add_seed(parser, "another seed, other lines", 1)
    add_counts(parser, COUNTS, "lines of each split (default: %(default)s)")


def prepare_lines(
    options: argparse.Namespace,
    data: str,
    law: Mapping[str, Any],
    symbols: Iterable[str],
    lines: Callable[..., Iterator[str]],
    longest: int,
) -> None:
    """Splits of different random numbers, each the same from the same seed.

    Args:
        options: those of ``add_generation``.
        data: name of the task.
        law: what lines are drawn from; keyword arguments of ``lines``.
        symbols: the dictionary.
        lines: (count, seed=..., **law) -> that many.
        longest: symbols of a line at most.

    Raises:
        ValueError: there would be more than MAX_TOKENS.
    """
    most = MAX_TOKENS // longest
    if sum(options.counts) > most:
        raise ValueError(
            f"--counts must have {most} lines together, {MAX_TOKENS} symbols, got "
            f"{' '.join(map(str, options.counts))}"
        )
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
    recipe = symbol_recipe(settings, splits, symbols)
    prepare_folder(options.dest, recipe, 1, options.overwrite)
