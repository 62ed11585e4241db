"""Makes the copy task of "Transformers are RNNs" (section 4.1.1).

A line is a series of symbols, the separator and the same series again, as in
3 1 4 | 3 1 4. Lengths are uniform in SHORTEST ... LONGEST, each symbol is drawn evenly
and independently. The seed gives the same lines on every machine. Without options a
line has up to 125 symbols, as in the authors' code: the paper's 128 are a line's there.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from data_prep.folders.command import add_integer, command
from data_prep.symbols.generated_lines import add_generation, prepare_lines

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


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_generation(parser)
    length = (1, MAX_LENGTH)
    add_integer(parser, "--symbols", (1, MAX_SYMBOLS), "different ones", 10)
    shortest = "series, in symbols (default: more than half of the longest)"
    add_integer(parser, "--shortest", length, shortest)
    add_integer(parser, "--longest", length, "series, in symbols", 62)


def _prepare(options: argparse.Namespace) -> None:
    longest = options.longest
    shortest = options.shortest or longest // 2 + 1
    if shortest > longest:
        raise ValueError(f"--shortest must be --longest, {longest}, or less")
    law = {"symbols": options.symbols, "shortest": shortest, "longest": longest}
    symbols = [*map(str, range(options.symbols)), SEPARATOR]
    prepare_lines(options, "copy_task", law, symbols, lines)


main = command("copy_task", __doc__, _add_options, _prepare)
