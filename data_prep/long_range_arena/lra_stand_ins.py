"""Writes small stand-ins for text, image and retrieval, for smoke runs and tests.

They have the form of the Long-Range Arena's data of these names and rules that a model
can learn; no figure measured on them says anything about the arena. ListOps and
Pathfinder need no stand-ins: data_prep lra generates them in any size.

text: which of two letters there are more of. image: the brightness, in ten steps.
retrieval: whether both documents have the same most frequent letter.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from data_prep.folders.arguments import add_destination, command_parser
from data_prep.folders.errors import run_command
from data_prep.folders.sequence_folder import Example, Recipe, prepare_sequences
from fairseq_transnormer.argument_types import integer_between, seed
from fairseq_transnormer.data import SPLITS

LETTERS = np.frombuffer(b"abcdefgh", np.uint8)
PIXELS = 1024
MAX_LENGTH = 10_000
MAX_EXAMPLES = 100_000


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


STAND_INS: dict[str, tuple[Callable, int, int]] = {
    # an example, sequences, classes
    "text": (_text, 1, 2),
    "image": (_image, 1, 10),
    "retrieval": (_retrieval, 2, 2),
}


def recipe(name: str, counts: list[int], longest: int, seed: int) -> Recipe:
    """How the stand-in ``name`` is made; ``longest`` is not for images."""
    example, sequences, classes = STAND_INS[name]
    of_split = dict(zip(SPLITS, counts, strict=True))

    def examples(split: str) -> Iterator[Example]:
        random = np.random.default_rng((seed, SPLITS.index(split)))
        return (example(random, longest) for _ in range(of_split[split]))

    settings = {"data": name, "stand_in": True, "seed": seed, "counts": of_split}
    settings |= {} if name == "image" else {"longest": longest}
    return Recipe(settings, sequences, 256, classes, examples, of_split)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("lra_stand_ins", __doc__)
    add_destination(parser)
    add = parser.add_argument
    add("--seed", type=seed, default=1, metavar="N")
    add(
        "--longest",
        type=integer_between(2, MAX_LENGTH),
        default=256,
        metavar="N",
        help="text, retrieval",
    )
    add(
        "--counts",
        type=integer_between(1, MAX_EXAMPLES),
        nargs=3,
        default=(64, 16, 16),
        metavar=("TRAIN", "VALID", "TEST"),
        help="examples of each split (default: %(default)s)",
    )
    options = parser.parse_args(arguments)

    def prepare() -> None:
        for name in STAND_INS:
            made = recipe(name, options.counts, options.longest, options.seed)
            prepare_sequences(Path(options.dest) / name, made, options.overwrite)

    return run_command(parser.prog, prepare)
