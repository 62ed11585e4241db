"""Pictures as lines of pixels: the course that each command of pictures takes."""

import argparse
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from data_prep.folders.binary_folder import Split, prepare_folder, symbol_recipe
from data_prep.folders.pictures import SHOWN, write_sheet
from fairseq_transnormer.data import SPLITS


def prepare_pictures(
    options: argparse.Namespace,
    name: str,
    size: dict[str, int],
    identity: dict[str, Any],
    of_split: Callable[[str], Iterator[np.ndarray]],
) -> None:
    """Writes the binary data of ``--dest``, and the sheet of ``--pictures``.

    A line is a picture row by row; of colour pictures each pixel is red, green and
    blue, one symbol after the other. A symbol is a level.

    Args:
        options: dest, overwrite, pictures.
        name: of the data.
        size: "height" and "width" in pixels, "levels" of each; of colour pictures
            "channels", too.
        identity: identifies the pictures.
        of_split: gives a split's pictures one by one, uint8 (height, width) or
            (height, width, channels).
    """

    def lines(split: str) -> Iterator[str]:
        for picture in of_split(split):
            yield " ".join(map(str, picture.ravel().tolist()))

    recipe = symbol_recipe(
        settings={"data": name} | size | identity,
        splits=[Split(split, lambda split=split: lines(split)) for split in SPLITS],
        symbols=map(str, range(size["levels"])),
    )
    prepare_folder(options.dest, recipe, 1, options.overwrite)
    if options.pictures:
        shown = np.stack([*islice(of_split("train"), SHOWN)]).astype(int)
        shades = (shown * 255 // (size["levels"] - 1)).astype(np.uint8)
        unlabelled = np.zeros(len(shades), int)
        write_sheet(shades, unlabelled, options.pictures, options.overwrite)
