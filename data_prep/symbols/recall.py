"""Makes multi-query associative recall (Arora et al., 2023, "Zoology").

A line begins with pairs of a key and its value, as in k7 v3 k1 v9; later each key
stands once more, alone, and its value is the answer there. After a bar follow the
answers, place by place, with dots where there is none:

    k7 v3 k1 v9 . . k1 . k7 . | . . . . . . v9 . v3 .

Keys of a line differ, and so do its values. A key comes again at one of the even places
after the pairs, gap g with a probability proportional to g^(POWER - 1), as published;
other places have dots, where the paper has random symbols. The seed gives the same
lines on every machine.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from data_prep.folders.command import add_integer, command
from data_prep.symbols.generated_lines import add_generation, prepare_lines
from fairseq_transnormer.argument_types import positive_number
from fairseq_transnormer.data.recall import BAR, BLANK

MAX_VOCABULARY = 10**6
MAX_LENGTH = 10**5


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
        inputs, answers = [BLANK] * length, [BLANK] * length
        for i, (key, value, gap) in enumerate(zip(keys, values, gaps, strict=True)):
            inputs[2 * i : 2 * i + 2] = f"k{key}", f"v{value}"
            at = 2 * (pairs + int(gap) - 1)
            inputs[at], answers[at] = f"k{key}", f"v{value}"
        yield " ".join([*inputs, BAR, *answers])


def _places(length: int, pairs: int) -> np.ndarray:
    """Where a key may come again, counted after the pairs."""
    return np.arange(1, (length - 2 * pairs) // 2 + 1)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_generation(parser)
    vocabulary, length = (4, MAX_VOCABULARY), (4, MAX_LENGTH)
    add_integer(parser, "--vocabulary", vocabulary, "keys and values", 8192)
    add_integer(parser, "--length", length, "places of a line", 64)
    add_integer(parser, "--pairs", (1, MAX_LENGTH), "of a line", 4)
    parser.add_argument(
        "--power",
        type=positive_number,
        default=0.01,
        metavar="X",
        help="of the law of the gaps; 1: all places alike (default: 0.01)",
    )


def _prepare(options: argparse.Namespace) -> None:
    half, pairs, length = options.vocabulary // 2, options.pairs, options.length
    if options.vocabulary % 2 or half < pairs:
        raise ValueError(
            f"--vocabulary must be even and {2 * pairs} or more with --pairs {pairs}, "
            f"got {options.vocabulary}"
        )
    if length % 2 or length < 4 * pairs:
        raise ValueError(
            f"--length must be even and {4 * pairs} or more with --pairs {pairs}, got "
            f"{length}"
        )
    names = ("vocabulary", "length", "pairs", "power")
    law = {name: getattr(options, name) for name in names}
    keys, values = ([f"{kind}{i}" for i in range(half)] for kind in "kv")
    symbols = [*keys, *values, BLANK, BAR]
    prepare_lines(options, "recall", law, symbols, lines)


main = command("recall", __doc__, _add_options, _prepare)
