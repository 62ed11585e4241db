"""``data_prep synthetic_lra``: small data in the arena's form, for smoke runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fairseq_transnormer.data import SPLITS

from ..folders.options import Counts, Place, Seed, at_least
from ..folders.sequence_folder import Example, prepare_sequences

LETTERS = np.frombuffer(b"abcdefgh", np.uint8)
PIXELS = 1024


def synthetic_lra(
    place: Place, seed: Seed = 1, longest: int = 256, counts: Counts = (64, 16, 16)
) -> None:
    """Write small synthetic data in the form of the Long-Range Arena, for smoke runs.

    They are of text, image and retrieval, by rules that a model can learn; no figure
    measured on them says anything about the arena. ListOps and Pathfinder need none:
    data_prep lra generates them in any size.

    text: which of two letters there are more of. image: the brightness, in ten steps.
    retrieval: whether both documents have the same most frequent letter.

    Args:
        longest: bytes of a text.
    """
    at_least(2, longest=longest)
    numbers = dict(zip(SPLITS, counts, strict=True))
    for name, (example, sequences, classes) in SYNTHETIC.items():

        def examples(split: str, example: Callable[..., Example] = example):
            random = np.random.default_rng((seed, SPLITS.index(split)))
            return (example(random, longest) for _ in range(numbers[split]))

        settings = {"data": name, "synthetic": True, "seed": seed, "counts": numbers}
        settings |= {} if name == "image" else {"longest": longest}
        own = replace(place, dest=place.dest / name)
        prepare_sequences(own, settings, examples, 256, classes, sequences)


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
