"""Prepares CIFAR-10's pictures as sequences of pixels, for autoregressive models.

A line is a picture row by row, and of each pixel its red, green and blue, one symbol
after the other: 32 x 32 x 3 = 3,072 symbols of 256 levels. The pictures come from the
Hugging Face hub or --from-dir; the last 5,000 of the train split are valid.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.folders.arguments import (
    add_destination,
    add_other_sizes,
    add_pictures,
    command_parser,
)
from data_prep.folders.cifar10_source import (
    ARCHIVE,
    SHAPE,
    cifar10_pictures,
    cifar10_rows,
)
from data_prep.folders.errors import run_command
from data_prep.symbols.pixel_lines import Pictures, prepare_pictures


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("cifar10", __doc__)
    add_destination(parser)
    parser.add_argument(
        "--from-dir",
        type=Path,
        metavar="SRC",
        help=f"{ARCHIVE}, or a folder that has it, the files in it, a data set saved "
        "with save_to_disk, or the hub's parquet files",
    )
    add_other_sizes(parser, "the published files and numbers of each label")
    add_pictures(parser)
    options = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _prepare(options))


def _prepare(options: argparse.Namespace) -> None:
    rows = cifar10_rows(options.from_dir, options.allow_other_sizes)

    def of_split(split: str) -> Iterator[np.ndarray]:
        return (pixels for pixels, _, _ in cifar10_pictures(rows, split))

    size = dict(zip(("height", "width", "channels"), SHAPE, strict=True))
    pictures = Pictures(size | {"levels": 256}, {"files": rows.identity}, of_split)
    prepare_pictures(options, "cifar10", pictures)
