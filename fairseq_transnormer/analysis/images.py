"""Images from models of pixels."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import REPORT
from ..data.binary_data import read_binary_data
from ..outputs import NamedPaths, OutputFolder
from .figures import pictures

if TYPE_CHECKING:
    from ..inference import TextGenerator

# what a drawn symbol is that is no level; an untrained model draws some
NO_LEVEL = -1
MASKED, FOREIGN = (0.27, 0.33, 0.4), (0.8, 0.2, 0.2)  # colours


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
        settings = json.loads(path.read_text(encoding="utf-8")).get("settings", {})
        if "levels" not in settings:
            makers = "data_prep digits or data_prep cifar10"
            raise ValueError(f"{path}: no images; give what {makers} made")
        return cls(**{k: v for k, v in settings.items() if k in cls.__annotations__})

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image: (height, width), and of a colour image its channels."""
        channels = () if self.channels is None else (self.channels,)
        return (self.height, self.width, *channels)


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
        missing = math.prod(self.image.shape) - given[0].size
        settings = {"sampling": True} | settings
        settings |= {"min_new_tokens": missing, "max_new_tokens": missing}
        drawn = self.generator.generate(prompts, **settings)
        return np.stack([self._levels(each.tokens) for each in drawn])

    def images(self, data: Path, split: str, count: int) -> np.ndarray:
        """The first ``count`` images of a split of prepared data."""
        lines = islice(read_binary_data(data / split).lines(), count)
        return np.stack([self._levels(line.tolist()) for line in lines])

    def _levels(self, tokens: list[int]) -> np.ndarray:
        """Levels, of image.shape, of a line's tokens, its end left out."""
        return self._level_of[np.array(tokens[:-1])].reshape(self.image.shape)


def images(
    checkpoints: NamedPaths,
    /,
    data: Path,
    output: OutputFolder,
    count: int = 12,
    split: str = "test",
    seed: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    device: str | None = None,
) -> None:
    """Images from models of pixels: sampled ones, and halves that are completed.

        python -m fairseq_transnormer analyse images --data data-bin/digits \\
            T2=runs/digits/checkpoints/checkpoint_best.pt --output images

    writes images.png into the folder. It has rows of sampled images. Below them are the
    upper halves of images of the test split, each model's completions, and the images.

    Args:
        checkpoints: models, or their exports.
        data: what data_prep digits or data_prep cifar10 made.
        output: folder.
        count: images in a row.
        split: of the images to complete.
        seed: image i is drawn with seed + i.
        temperature: divides the logits.
        top_k: draw from the k likeliest levels.
        top_p: draw from the levels that together have this probability.
        device: cpu, cuda, cuda:1, ...; None: cuda if there is one, else cpu.
    """
    from ..inference import TextGenerator

    image = ImageFormat.of(data)
    settings: dict[str, Any] = {"seed": seed, "temperature": temperature}
    settings |= {"top_k": top_k, "top_p": top_p}
    models = {
        name: ImageGenerator(TextGenerator.from_checkpoint(path, data, device), image)
        for name, path in checkpoints.items()
    }
    originals = next(iter(models.values())).images(data, split, count)
    half = image.height // 2
    sampled, completed = {}, {}
    for name, model in models.items():
        first, second = np.split(model.sample(2 * count, **settings), 2)
        sampled |= {f"{name}, sampled": first, f"{name}, sampled again": second}
        drawn = model.complete(originals[:, :half], **settings)
        completed[f"{name}, completed"] = drawn
    given = np.ma.masked_array(originals)
    given[:, half:] = np.ma.masked
    rows = sampled | {"given": given} | completed | {"the image": originals}
    shown = {}
    for title, levels in rows.items():
        if foreign := int((np.ma.filled(levels, 0) == NO_LEVEL).sum()):
            print(f"{title}: {foreign} of {levels.size} symbols are no level")
        colours = [shades(each, image.levels) for each in np.ma.masked_array(levels)]
        # a white line between two images
        gap = ((0, 0), (0, 1), (0, 0))
        strips = [np.pad(each, gap, constant_values=1.0) for each in colours]
        shown[title] = [("", np.concatenate(strips, 1))]
    pictures(shown, output / "images.png", inch=0.6)
    print(f"written: {output / 'images.png'}")


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
