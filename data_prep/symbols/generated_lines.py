"""Lines that are drawn from a seed, in three splits: what the generated tasks share."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from data_prep.folders.binary_folder import Split, prepare_folder, symbol_recipe
from data_prep.folders.command import add_counts, add_destination, add_seed
from fairseq_transnormer.data import SPLITS

COUNTS = (100_000, 1000, 1000)


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
) -> None:
    """Splits of different random numbers, each the same from the same seed.

    Args:
        options: those of ``add_generation``.
        data: name of the task.
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
    recipe = symbol_recipe(settings, splits, symbols)
    prepare_folder(options.dest, recipe, 1, options.overwrite)
