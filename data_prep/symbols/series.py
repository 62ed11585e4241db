"""``data_prep copy_task`` and ``recall``: lines that are drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.recall import BAR, BLANK

from ..folders.binary_folder import Split, prepare_folder, symbol_tokenizer
from ..folders.options import Counts, Place, Seed, at_least

COUNTS = (100_000, 1000, 1000)
SEPARATOR = "|"


def copy_task(
    place: Place,
    seed: Seed = 1,
    counts: Counts = COUNTS,
    symbols: int = 10,
    shortest: int | None = None,
    longest: int = 62,
) -> None:
    """Make the copy task of "Transformers are RNNs" (section 4.1.1).

    A line is a series of symbols, the separator and the same series again, as in
    3 1 4 | 3 1 4. Lengths are uniform in SHORTEST ... LONGEST, each symbol is drawn
    evenly and independently. The seed gives the same lines on every machine. Without
    options a line has up to 125 symbols, as in the authors' code: the paper's 128 are
    a line's there.

    Args:
        symbols: different ones.
        shortest: series, in symbols; None: more than half of the longest.
        longest: series, in symbols.
    """
    at_least(1, symbols=symbols, shortest=shortest, longest=longest)
    shortest = shortest or longest // 2 + 1
    if shortest > longest:
        raise ValueError(f"--shortest must be up to --longest, {longest}")
    law = {"symbols": symbols, "shortest": shortest, "longest": longest}
    known = [*map(str, range(symbols)), SEPARATOR]
    _prepare(place, "copy_task", seed, counts, law, known, copies)


def copies(
    count: int, symbols: int, shortest: int, longest: int, seed: list[int]
) -> Iterator[str]:
    """``count`` lines; equal arguments give equal ones."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        length = random.integers(shortest, longest + 1)
        series = " ".join(map(str, random.integers(0, symbols, length)))
        yield f"{series} {SEPARATOR} {series}"


def recall(
    place: Place,
    seed: Seed = 1,
    counts: Counts = COUNTS,
    vocabulary: int = 8192,
    length: int = 64,
    pairs: int = 4,
    power: float = 0.01,
) -> None:
    """Make multi-query associative recall (Arora et al., 2023, "Zoology").

    A line begins with pairs of a key and its value, as in k7 v3 k1 v9. Later each key
    occurs once more, alone; its value is the answer there. The answers follow after a
    bar, one for each position, with dots where there is none:

        k7 v3 k1 v9 . . k1 . k7 . | . . . . . . v9 . v3 .

    Keys of a line differ, and so do its values. A key occurs again at an even position
    after the pairs. The probability of gap g is proportional to g^(POWER - 1), as
    published. Other positions have dots; the paper has random symbols there. The seed
    gives the same lines on every machine.

    Args:
        vocabulary: keys and values.
        length: places of a line.
        pairs: of a line.
        power: of the law of the gaps; 1: all places alike.
    """
    at_least(1, pairs=pairs)
    at_least(2 * pairs, vocabulary=vocabulary)
    at_least(4 * pairs, length=length)
    if vocabulary % 2 or length % 2:
        raise ValueError("--vocabulary and --length must be even")
    law = {"vocabulary": vocabulary, "length": length, "pairs": pairs, "power": power}
    keys, values = ([f"{kind}{i}" for i in range(vocabulary // 2)] for kind in "kv")
    symbols = [*keys, *values, BLANK, BAR]
    _prepare(place, "recall", seed, counts, law, symbols, recalled)


def recalled(
    count: int, vocabulary: int, length: int, pairs: int, power: float, seed: list[int]
) -> Iterator[str]:
    """``count`` lines; equal arguments give equal ones."""
    random = np.random.default_rng(seed)
    # where a key may come again, counted after the pairs
    places = np.arange(1, (length - 2 * pairs) // 2 + 1)
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


def _prepare(
    place: Place,
    data: str,
    seed: int,
    numbers: Iterable[int],
    law: dict[str, Any],
    symbols: Iterable[str],
    lines: Callable[..., Iterator[str]],
) -> None:
    """Splits of different random numbers, each the same from the same seed.

    ``lines(count, seed=..., **law)`` gives that many; the dictionary has ``symbols``.
    """
    counts = dict(zip(SPLITS, numbers, strict=True))

    def split(number: int, name: str) -> Split:
        own = [seed, number]
        return Split(name, lambda: lines(counts[name], **law, seed=own), counts[name])

    settings = {"data": data, "seed": seed, "counts": counts, **law}
    splits = [split(number, name) for number, name in enumerate(SPLITS)]
    prepare_folder(place, settings, splits, symbol_tokenizer(symbols))
