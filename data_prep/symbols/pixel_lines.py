"""Pictures as lines of pixels: the course that each command of pictures takes."""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from data_prep.folders.binary_folder import Recipe, Split, prepare_folder, symbol_recipe
from data_prep.folders.picture_sheet import make_sheet, write_sheet
from fairseq_transnormer.data import SPLITS

PICTURES_SHOWN = 32


@dataclass(frozen=True)
class Pictures:
    """A data set of pictures.

    Attributes:
        size: "height" and "width" in pixels, "levels" of each; of colour pictures
            "channels", too.
        identity: what tells them from others.
        of_split: gives a split's pictures one by one, uint8 (height, width) or
            (height, width, channels).
    """

    size: dict[str, int]
    identity: dict[str, Any]
    of_split: Callable[[str], Iterator[np.ndarray]]


def prepare_pictures(
    options: argparse.Namespace, name: str, pictures: Pictures
) -> None:
    """Writes the binary data of ``--dest``, and the sheet of ``--pictures``.

    A line is a picture row by row; of colour pictures each pixel is red, green and
    blue, one symbol after the other. A symbol is a level.
    """
    recipe = _recipe(name, pictures)
    prepare_folder(options.dest, recipe, workers=1, overwrite=options.overwrite)
    if options.pictures:
        shown = np.stack([*islice(pictures.of_split("train"), PICTURES_SHOWN)])
        brightest = pictures.size["levels"] - 1
        shades = (shown.astype(int) * 255 // brightest).astype(np.uint8)
        sheet = make_sheet(shades, np.zeros(len(shades), int))
        write_sheet(sheet, options.pictures, options.overwrite)


def _recipe(name: str, pictures: Pictures) -> Recipe:
    def lines(split: str) -> Iterator[str]:
        for picture in pictures.of_split(split):
            yield " ".join(map(str, picture.ravel().tolist()))

    return symbol_recipe(
        settings={"data": name} | pictures.size | pictures.identity,
        splits=[Split(split, lambda split=split: lines(split)) for split in SPLITS],
        symbols=map(str, range(pictures.size["levels"])),
    )
