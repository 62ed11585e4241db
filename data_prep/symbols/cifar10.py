"""Prepares CIFAR-10's pictures as sequences of pixels, for autoregressive models.

A line is a picture row by row, and of each pixel its red, green and blue, one symbol
after the other: 32 x 32 x 3 = 3,072 symbols of 256 levels. The pictures come from the
Hugging Face hub or --from-dir; the last 5,000 of the train split are valid.
"""

import argparse

from data_prep.folders.command import (
    add_destination,
    add_other_sizes,
    add_source,
    command,
)
from data_prep.folders.hub import labelled_data
from data_prep.folders.pictures import (
    CIFAR10,
    CIFAR10_SHAPE,
    add_pictures,
    cifar10_pictures,
)
from data_prep.symbols.pixel_lines import prepare_pictures


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_destination(parser)
    add_source(parser, "the hub's parquet files")
    add_other_sizes(parser, "the published files and numbers of each label")
    add_pictures(parser)


def _prepare(options: argparse.Namespace) -> None:
    loaded = labelled_data(CIFAR10, options.from_dir, options.allow_other_sizes)
    size = dict(zip(("height", "width", "channels"), CIFAR10_SHAPE, strict=True))
    prepare_pictures(
        options,
        "cifar10",
        size | {"levels": 256},
        {"files": loaded.identity},
        lambda split: (pixels for pixels, _ in cifar10_pictures(loaded, split)),
    )


main = command("cifar10", __doc__, _add_options, _prepare)
