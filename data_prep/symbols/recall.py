"""Makes multi-query associative recall (Arora et al., 2023, "Zoology").

A line begins with pairs of a key and its value, as in k7 v3 k1 v9; later each key
stands once more, alone, and its value is to be told there. After a bar follows what is
to be told at each place, with dots where nothing is:

    k7 v3 k1 v9 . . k1 . k7 . | . . . . . . v9 . v3 .

Keys of a line differ, and so do its values. A key comes again at one of the even places
after the pairs, gap g with a probability proportional to g^(POWER - 1), as published;
other places have dots, where the paper has random symbols. The seed gives the same
lines on every machine.
"""

import argparse
import math
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
from fairseq_transnormer.argument_types import integer_between, positive_number
from fairseq_transnormer.data.recall import BAR, BLANK

MAX_VOCABULARY = 10**6
MAX_LENGTH = 10**5
# of a place's weight; their sum is a float64, too
LARGEST_LOG = 650.0


def lines(
    count: int, vocabulary: int, length: int, pairs: int, power: float, seed: list[int]
) -> Iterator[str]:
    """``count`` lines; equal arguments give equal ones."""
    random = np.random.default_rng(seed)
    places = _places(length, pairs)
    weights = places ** (power - 1.0)
    weights /= weights.sum()
    for _ in range(count):
        keys = random.choice(vocabulary // 2, pairs, replace=False)
        values = random.choice(vocabulary // 2, pairs, replace=False)
        gaps = random.choice(places, pairs, replace=False, p=weights)
        inputs, told = [BLANK] * length, [BLANK] * length
        for i, (key, value, gap) in enumerate(zip(keys, values, gaps, strict=True)):
            inputs[2 * i : 2 * i + 2] = f"k{key}", f"v{value}"
            at = 2 * (pairs + int(gap) - 1)
            inputs[at], told[at] = f"k{key}", f"v{value}"
        yield " ".join([*inputs, BAR, *told])


def _places(length: int, pairs: int) -> np.ndarray:
    """Where a key may come again, counted after the pairs."""
    return np.arange(1, (length - 2 * pairs) // 2 + 1)


def _recipe(options: argparse.Namespace) -> Recipe:
    half = options.vocabulary // 2
    if options.vocabulary % 2 or half < options.pairs:
        raise InputError(
            f"--vocabulary {options.vocabulary}; allowed with --pairs {options.pairs}: "
            f"even numbers from {2 * options.pairs}, half of them keys"
        )
    if options.length % 2 or options.length < 4 * options.pairs:
        raise InputError(
            f"--length {options.length}; allowed with --pairs {options.pairs}: even "
            f"numbers from {4 * options.pairs}"
        )
    check_total(options, f"--length {options.length}", 2 * options.length + 1)
    most = _places(options.length, options.pairs)[-1]
    if (options.power - 1) * math.log(most) > LARGEST_LOG:
        limit = LARGEST_LOG / math.log(most) + 1
        raise InputError(
            f"--power {options.power:g}; allowed with --length {options.length}: up to "
            f"{limit:.1f}"
        )
    law = {
        name: getattr(options, name)
        for name in ("vocabulary", "length", "pairs", "power")
    }
    keys, values = ([f"{kind}{i}" for i in range(half)] for kind in "kv")
    symbols = [*keys, *values, BLANK, BAR]
    return generated_recipe("recall", options, law, symbols, lines)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("recall", __doc__)
    add_generation(parser)
    add = parser.add_argument
    different = {"type": integer_between(4, MAX_VOCABULARY), "metavar": "N"}
    length = {"type": integer_between(4, MAX_LENGTH), "metavar": "N"}
    pairs = {"type": integer_between(1, MAX_LENGTH), "metavar": "N"}
    help_text = "keys and values (default: 8192)"
    add("--vocabulary", default=8192, help=help_text, **different)
    add("--length", default=64, help="places of a line (default: 64)", **length)
    add("--pairs", default=4, help="of a line (default: 4)", **pairs)
    add(
        "--power",
        type=positive_number,
        default=0.01,
        metavar="X",
        help="of the law of the gaps; 1: all places alike (default: 0.01)",
    )
    return prepare(parser, arguments, _recipe)
