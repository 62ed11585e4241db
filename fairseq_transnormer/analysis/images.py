"""Images from models of pixels: sampled ones, and halves that are completed.

    python -m fairseq_transnormer analyse images --data data-bin/digits \\
        --checkpoint T2=runs/digits/checkpoints/checkpoint_best.pt --output images

writes images.png into the folder: rows of sampled images, then the upper halves of
images of the test split, what each model makes of them, and the images themselves.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..argument_types import positive_integer
from ..data import REPORT
from ..data.binary_data import read_binary_data
from ..cli import command_parser, output_folder, run_command
from .figures import named_paths, pyplot, save

if TYPE_CHECKING:
    from ..inference import TextGenerator

# what a drawn symbol is that is no level; an untrained model draws some
NO_LEVEL = -1
# of the folders with images
MAKERS = "data_prep digits or data_prep cifar10"


@dataclass(frozen=True)
class ImageFormat:
    """height and width in pixels; levels: 0 (black) ... levels - 1.

    channels: None for grey images, whose arrays have no axis for them.
    """

    height: int
    width: int
    levels: int
    channels: int | None = None

    @classmethod
    def of(cls, data: Path) -> ImageFormat:
        """What data_prep digits or cifar10 noted of the folder's images.

        Raises:
            ValueError: the folder has no images.
        """
        path = data / REPORT
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
            size = (settings[name] for name in ("height", "width", "levels"))
            return cls(*size, settings.get("channels"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}: {error!r}; allowed: a folder that {MAKERS} made"
            ) from error

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image: (height, width), and of a colour image its channels."""
        channels = () if self.channels is None else (self.channels,)
        return (self.height, self.width, *channels)

    @property
    def symbols(self) -> int:
        """How many symbols a line has: one for each channel of each pixel."""
        return math.prod(self.shape)


class ImageGenerator:
    """Draws images pixel by pixel, from the model's distribution.

    Args:
        generator: of a model that was trained on lines of levels.
        image: their format.
    """

    def __init__(self, generator: TextGenerator, image: ImageFormat):
        self.generator, self.image = generator, image
        numbers = generator.words.numbers
        self._level_of = np.full(len(numbers), NO_LEVEL)
        for level in range(image.levels):
            self._level_of[numbers[str(level)]] = level

    def sample(self, count: int, **settings) -> np.ndarray:
        """``count`` images, int64 (count, *image.shape); see ``complete``."""
        empty = np.zeros((count, 0, *self.image.shape[1:]), int)
        return self.complete(empty, **settings)

    def complete(self, given: np.ndarray, **settings) -> np.ndarray:
        """Images that begin with given rows.

        Args:
            given: levels, (count, rows, width) and of colour images their channels.
            settings: of ``GenerationSettings``, but for the lengths; pixels are drawn
                from the whole distribution unless they say otherwise.

        Returns:
            levels, int64 (count, *image.shape); NO_LEVEL where the model drew another
            symbol of the dictionary.
        """
        prompts = [" ".join(map(str, each.ravel().tolist())) for each in given]
        missing = self.image.symbols - given[0].size
        lengths = {"min_new_tokens": missing, "max_new_tokens": missing}
        drawn = self.generator.generate(
            prompts, **{"sampling": True} | settings | lengths
        )
        return np.stack([self._levels(each.tokens) for each in drawn])

    def images(self, data: Path, split: str, count: int) -> np.ndarray:
        """The first ``count`` images of a split of prepared data."""
        lines = islice(read_binary_data(data / split).lines(), count)
        return np.stack([self._levels(line.tolist()) for line in lines])

    def _levels(self, tokens: list[int]) -> np.ndarray:
        """Levels, of image.shape, of a line's tokens, its end left out."""
        if len(tokens) != self.image.symbols + 1:
            raise ValueError(
                f"a line of {len(tokens) - 1} symbols; allowed: the "
                f"{self.image.symbols} of an image of {self.image.shape}"
            )
        return self._level_of[np.array(tokens[:-1])].reshape(self.image.shape)


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    rows, image = _rows(options)
    draw_rows(rows, image.levels, options.output / "images.png")
    for title, pictures in rows:
        foreign = int((np.ma.filled(pictures, 0) == NO_LEVEL).sum())
        if foreign:
            print(f"{title}: {foreign} of {pictures.size} symbols are no level")
    print(f"written: {options.output / 'images.png'}")


def _rows(
    options: argparse.Namespace,
) -> tuple[list[tuple[str, np.ndarray]], ImageFormat]:
    """Titles and pictures of the sheet's rows."""
    from ..inference import TextGenerator

    image = ImageFormat.of(options.data)
    settings = {
        name: getattr(options, name)
        for name in ("seed", "temperature", "top_k", "top_p")
    }
    models = {
        name: ImageGenerator(
            TextGenerator.from_checkpoint(path, options.data, options.device), image
        )
        for name, path in named_paths(options.checkpoint).items()
    }
    sampled, completed = [], []
    for name, model in models.items():
        pictures = model.sample(2 * options.count, **settings)
        for part in np.split(pictures, 2):
            sampled.append((f"{name}, sampled", part))
        originals = model.images(options.data, options.split, options.count)
        upper = originals[:, : image.height // 2]
        completed.append((f"{name}, completed", model.complete(upper, **settings)))
    given = np.ma.masked_array(originals)
    given[:, image.height // 2 :] = np.ma.masked
    return [*sampled, ("given", given), *completed, ("the image", originals)], image


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fairseq_transnormer analyse images", __doc__)
    add = parser.add_argument
    add(
        "--checkpoint",
        action="append",
        required=True,
        metavar="[NAME=]FILE",
        help="a model; may be given again",
    )
    add("--data", type=Path, required=True, help=f"what {MAKERS} made")
    add("--output", type=output_folder, required=True, help="folder")
    add("--count", type=positive_integer, default=12, help="images in a row (12)")
    add("--split", default="test", help="of the images to complete (test)")
    add("--seed", type=int, default=1, help="image i is drawn with seed + i (1)")
    add("--temperature", type=float, default=1.0, help="divides the logits (1)")
    add("--top-k", type=int, help="draw from the k likeliest levels")
    add("--top-p", type=float, help="draw from the levels that sum to probability p")
    add("--device", help="cuda if there is one, else cpu")
    return parser


# of a pixel, between two images
GAP = 1
WHITE, MASKED, FOREIGN = (1.0, 1.0, 1.0), (0.27, 0.33, 0.4), (0.8, 0.2, 0.2)


def draw_rows(rows: list[tuple[str, np.ndarray]], levels: int, target: Path) -> None:
    """Draw rows of images; what is masked, or no level, in a colour of its own.

    Args:
        rows: title and levels of each: (count, height, width) are grey, (count, height,
            width, 3) red, green and blue.
        levels: 0 ... levels - 1 are black ... white.
        target: PNG file.
    """
    plt = pyplot()
    count = max(len(pictures) for _, pictures in rows)
    height, width = rows[0][1].shape[1:3]
    inch = 0.6
    figure, grid = plt.subplots(
        len(rows),
        1,
        figsize=(2.0 + inch * count, inch * height / width * len(rows)),
        squeeze=False,
        layout="constrained",
    )
    for axes, (title, pictures) in zip(grid[:, 0], rows, strict=True):
        strip = np.full((height, count * (width + GAP) - GAP, 3), WHITE)
        for i, picture in enumerate(np.ma.masked_array(pictures)):
            strip[:, i * (width + GAP) : i * (width + GAP) + width] = shades(
                picture, levels
            )
        axes.imshow(strip)
        lines = title.replace(", ", ",\n")
        axes.set_ylabel(lines, rotation=0, ha="right", va="center")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    save(figure, target)


def shades(picture: np.ma.MaskedArray, levels: int) -> np.ndarray:
    """Red, green and blue from 0 to 1, (height, width, 3), of an image's levels.

    A pixel has a colour of its own where one of its levels is masked, or NO_LEVEL.
    """
    if picture.ndim == 2:
        picture = picture[:, :, None].repeat(3, 2)
    found = picture.filled(0) / (levels - 1)
    found[(picture.filled(0) == NO_LEVEL).any(2)] = FOREIGN
    found[np.ma.getmaskarray(picture).any(2)] = MASKED
    return found
