"""Writes small synthetic data in the form of the Long-Range Arena, for smoke runs.

They are of text, image and retrieval, by rules that a model can learn; no figure
measured on them says anything about the arena. ListOps and Pathfinder need none:
data_prep lra generates them in any size.

text: which of two letters there are more of. image: the brightness, in ten steps.
retrieval: whether both documents have the same most frequent letter.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from data_prep.folders.command import (
    add_counts,
    add_destination,
    add_integer,
    add_seed,
    command,
)
from data_prep.folders.sequence_folder import Example, Recipe, prepare_sequences
from fairseq_transnormer.data import SPLITS

LETTERS = np.frombuffer(b"abcdefgh", np.uint8)
PIXELS = 1024
MAX_LENGTH = 10_000


def _letters(random: np.random.Generator, most: int, longest: int) -> np.ndarray:
    """Letters of which every second one, on average, is ``most``."""
    count = random.integers(longest // 2, longest + 1)
    drawn = random.choice(LETTERS, count)
    drawn[random.random(count) < 0.4] = most
    return drawn


def _text(random: np.random.Generator, longest: int) -> Example:
    label = int(random.integers(2))
    return (_letters(random, LETTERS[label], longest),), label


def _image(random: np.random.Generator, longest: int) -> Example:
    label = int(random.integers(10))
    pixels = random.normal(25 * label + 12, 20, PIXELS)
    return (pixels.clip(0, 255).astype(np.uint8),), label


def _retrieval(random: np.random.Generator, longest: int) -> Example:
    label = int(random.integers(2))
    first, second = random.choice(LETTERS, 2, replace=False)
    pair = (first, first if label else second)
    return tuple(_letters(random, most, longest) for most in pair), label


SYNTHETIC: dict[str, tuple[Callable, int, int]] = {
    # an example, sequences, classes
    "text": (_text, 1, 2),
    "image": (_image, 1, 10),
    "retrieval": (_retrieval, 2, 2),
}


def recipe(name: str, counts: list[int], longest: int, seed: int) -> Recipe:
    """How the data ``name`` are made; ``longest`` is not for images."""
    example, sequences, classes = SYNTHETIC[name]
    of_split = dict(zip(SPLITS, counts, strict=True))

    def examples(split: str) -> Iterator[Example]:
        random = np.random.default_rng((seed, SPLITS.index(split)))
        return (example(random, longest) for _ in range(of_split[split]))

    settings = {"data": name, "synthetic": True, "seed": seed, "counts": of_split}
    settings |= {} if name == "image" else {"longest": longest}
    return Recipe(settings, examples, 256, classes, sequences, of_split)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_destination(parser)
    add_seed(parser, "another seed, other data", 1)
    add_integer(parser, "--longest", (2, MAX_LENGTH), "bytes of a text", 256)
    add_counts(parser, (64, 16, 16), "examples of each split (default: %(default)s)")


def _prepare(options: argparse.Namespace) -> None:
    for name in SYNTHETIC:
        made = recipe(name, options.counts, options.longest, options.seed)
        prepare_sequences(options.dest / name, made, options.overwrite)


main = command("synthetic_lra", __doc__, _add_options, _prepare)
