"""Makes the copy task of "Transformers are RNNs" (section 4.1.1).

A line is a series of symbols, the separator and the same series again, as in
3 1 4 | 3 1 4. Lengths are uniform in SHORTEST ... LONGEST, each symbol is drawn evenly
and independently. The seed gives the same lines on every machine.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from data_prep.folders.arguments import add_destination, command_parser
from data_prep.folders.binary_folder import Recipe, Split, prepare_folder, symbol_recipe
from data_prep.folders.errors import InputError, run_command
from fairseq_transnormer.argument_types import integer_between, seed
from fairseq_transnormer.data import SPLITS

SEPARATOR = "|"
COUNTS = (100_000, 1000, 1000)
# of a line, and of all symbols; WikiText-103 has 10**8
MAX_LENGTH = 10**6
MAX_SYMBOLS = 10**6
MAX_LINES = 10**8
MAX_TOKENS = 10**10


def lines(
    count: int, symbols: int, shortest: int, longest: int, seed: list[int]
) -> Iterator[str]:
    """``count`` lines; equal arguments give equal ones."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        length = random.integers(shortest, longest + 1)
        series = " ".join(map(str, random.integers(0, symbols, length)))
        yield f"{series} {SEPARATOR} {series}"


def _recipe(options: argparse.Namespace) -> Recipe:
    if options.shortest > options.longest:
        raise InputError(
            f"--shortest {options.shortest}; allowed: up to --longest {options.longest}"
        )
    most = MAX_TOKENS // (2 * options.longest + 1)
    if sum(options.counts) > most:
        raise InputError(
            f"--counts {' '.join(map(str, options.counts))}; allowed with --longest "
            f"{options.longest}: {most} lines together, {MAX_TOKENS} symbols"
        )
    law = {
        "symbols": options.symbols,
        "shortest": options.shortest,
        "longest": options.longest,
    }
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

    return symbol_recipe(
        settings={"data": "copy_task", "seed": options.seed, "counts": counts} | law,
        splits=splits,
        symbols=[*map(str, range(options.symbols)), SEPARATOR],
    )


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("copy_task", __doc__)
    add_destination(parser)
    add = parser.add_argument
    different = {"type": integer_between(1, MAX_SYMBOLS), "metavar": "N"}
    length = {"type": integer_between(1, MAX_LENGTH), "metavar": "N"}
    add("--symbols", default=10, help="different ones (default: 10)", **different)
    add("--shortest", default=1, help="series, in symbols (default: 1)", **length)
    add("--longest", default=128, help="series, in symbols (default: 128)", **length)
    add("--seed", type=seed, default=1, metavar="N", help="(default: 1)")
    add(
        "--counts",
        type=integer_between(1, MAX_LINES),
        nargs=3,
        default=COUNTS,
        metavar=("TRAIN", "VALID", "TEST"),
        help="lines of each split (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _prepare(options))


def _prepare(options: argparse.Namespace) -> None:
    prepare_folder(
        options.dest, _recipe(options), workers=1, overwrite=options.overwrite
    )
