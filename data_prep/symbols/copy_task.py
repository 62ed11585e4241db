"""Makes the copy task of "Transformers are RNNs" (section 4.1.1).

A line is a series of symbols, the separator and the same series again, as in
3 1 4 | 3 1 4. Lengths are uniform in SHORTEST ... LONGEST, each symbol is drawn evenly
and independently. The seed gives the same lines on every machine. Without options a
line has up to 125 symbols, as in the authors' code: the paper's 128 are a line's there.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from data_prep.folders.arguments import command_parser
from data_prep.folders.binary_folder import Recipe
from data_prep.folders.errors import InputError
from data_prep.symbols.generated_lines import (
    add_generation,
    check_total,
    generated_recipe,
    prepare,
)
from fairseq_transnormer.argument_types import integer_between

SEPARATOR = "|"
# of a line, and of all symbols
MAX_LENGTH = 10**6
MAX_SYMBOLS = 10**6


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
    if options.shortest is None:
        options.shortest = options.longest // 2 + 1
    if options.shortest > options.longest:
        raise InputError(
            f"--shortest {options.shortest}; allowed: up to --longest {options.longest}"
        )
    check_total(options, f"--longest {options.longest}", 2 * options.longest + 1)
    law = {name: getattr(options, name) for name in ("symbols", "shortest", "longest")}
    symbols = [*map(str, range(options.symbols)), SEPARATOR]
    return generated_recipe("copy_task", options, law, symbols, lines)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("copy_task", __doc__)
    add_generation(parser)
    add = parser.add_argument
    different = {"type": integer_between(1, MAX_SYMBOLS), "metavar": "N"}
    length = {"type": integer_between(1, MAX_LENGTH), "metavar": "N"}
    add("--symbols", default=10, help="different ones (default: 10)", **different)
    shortest = "series, in symbols (default: more than half of the longest)"
    add("--shortest", help=shortest, **length)
    add("--longest", default=62, help="series, in symbols (default: 62)", **length)
    return prepare(parser, arguments, _recipe)
