"""Images from models of pixels."""

from __future__ import annotations

import json
import math
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

# a drawn symbol that is no level, as an untrained model draws some, or a missing one
NO_LEVEL = -1
MISSING = (0.27, 0.33, 0.4)  # its colour


class ImageGenerator:
    """Draws images pixel by pixel, from the model's distribution.

    Args:
        generator: of a model that was trained on lines of levels.
        data: what ``data_prep digits`` made.

    Attributes:
        shape: of an image: (height, width).
        levels: 0 (black) ... levels - 1.

    Raises:
        ValueError: the folder has no images.
    """

    def __init__(self, generator: TextGenerator, data: Path):
        path = data / REPORT
        settings = json.loads(path.read_text(encoding="utf-8")).get("settings", {})
        if "levels" not in settings:
            raise ValueError(f"{path}: no images; give what data_prep digits made")
        self.shape = settings["height"], settings["width"]
        self.levels, self.generator = settings["levels"], generator
        numbers = generator.words.numbers
        self._level_of = np.full(len(numbers), NO_LEVEL)
        levels = range(self.levels)
        self._level_of[[numbers[str(level)] for level in levels]] = levels

    def complete(self, given: np.ndarray, **settings) -> np.ndarray:
        """Images that begin with given rows.

        Args:
            given: levels, (count, rows, width).
            settings: of ``GenerationSettings``, but for the lengths.

        Returns:
            levels, int64 (count, *shape); NO_LEVEL where the model drew another
            symbol of the dictionary.
        """
        prompts = [" ".join(map(str, each.ravel().tolist())) for each in given]
        missing = math.prod(self.shape) - given[0].size
        lengths = {"min_new_tokens": missing, "max_new_tokens": missing}
        drawn = self.generator.generate(prompts, sampling=True, **settings, **lengths)
        return np.stack([self._levels(each.tokens) for each in drawn])

    def images(self, data: Path, split: str, count: int) -> np.ndarray:
        """The first ``count`` images of a split of prepared data."""
        lines = islice(read_binary_data(data / split).lines(), count)
        return np.stack([self._levels(line.tolist()) for line in lines])

    def _levels(self, tokens: list[int]) -> np.ndarray:
        """Levels, of ``shape``, of a line's tokens, its end left out."""
        return self._level_of[np.array(tokens[:-1])].reshape(self.shape)


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
        data: what data_prep digits made.
        output: folder.
        count: images in a row.
        split: of the images to complete.
        seed: image i is drawn with seed + i.
        temperature: divides the logits.
        top_k: draw from the k likeliest levels.
        top_p: draw from the levels that together have this probability.
        device: cpu, cuda, cuda:1, ...; None: cuda if there is one, else cpu.
    """
    from ..devices import usable_device
    from ..inference import TextGenerator
    from .language_models import language_model

    place = usable_device(device)
    settings: dict[str, Any] = {"seed": seed, "temperature": temperature}
    settings |= {"top_k": top_k, "top_p": top_p}
    models = {
        name: ImageGenerator(TextGenerator(language_model(path, data, place)), data)
        for name, path in checkpoints.items()
    }
    reader = next(iter(models.values()))
    originals = reader.images(data, split, count)
    half = originals[:, : originals.shape[1] // 2]
    given = np.full_like(originals, NO_LEVEL)
    given[:, : half.shape[1]] = half
    empty = np.zeros((2 * count, 0, reader.shape[1]), int)
    rows, completed = {}, {}
    for name, model in models.items():
        first, second = np.split(model.complete(empty, **settings), 2)
        rows |= {f"{name}, sampled": first, f"{name}, sampled again": second}
        completed[f"{name}, completed"] = model.complete(half, **settings)
    for title, levels in (rows | completed).items():
        if foreign := int((levels == NO_LEVEL).sum()):
            print(f"{title}: {foreign} of {levels.size} symbols are no level")
    rows |= {"given": given} | completed | {"the image": originals}
    shown = {title: [("", strip(row, reader.levels))] for title, row in rows.items()}
    pictures(shown, output / "images.png", inch=0.6)
    print(f"written: {output / 'images.png'}")


def strip(row: np.ndarray, levels: int) -> np.ndarray:
    """Images side by side, red, green and blue from 0 to 1 (height, widths, 3).

    ``row`` has their levels, (count, height, width); NO_LEVEL has a colour of its own.
    """
    found = (row / (levels - 1))[..., None].repeat(3, 3)
    found[row == NO_LEVEL] = MISSING
    # a white line after each image
    gap = ((0, 0), (0, 0), (0, 1), (0, 0))
    return np.concatenate(np.pad(found, gap, constant_values=1.0), 1)
