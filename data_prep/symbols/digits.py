"""Prepares pictures of digits as sequences of pixels, for autoregressive models.

A line is a picture row by row; a pixel's symbol is its level. By default the 1,797
pictures that come with scikit-learn, 8 x 8 of 17 levels, 1,257 for train, 180 for valid
and 360 for test. --source mnist is MNIST, 28 x 28 of 256 levels, from the Hugging Face
hub or --from-dir; the last 5,000 pictures of its train split are valid.
"""

import argparse
from pathlib import Path

from data_prep.folders.arguments import (
    add_destination,
    add_other_sizes,
    add_pictures,
    command_parser,
    refuse_given,
)
from data_prep.folders.errors import InputError, run_command
from data_prep.symbols.digit_pictures import mnist_digits, sklearn_digits
from data_prep.symbols.pixel_lines import Pictures, prepare_pictures
from fairseq_transnormer.argument_types import seed

SOURCES = ("sklearn", "mnist")
DEFAULT_SEED = 1


def _digits(options: argparse.Namespace) -> Pictures:
    if options.source == "mnist":
        refuse_given(options, ["seed"], "with --source sklearn")
        return mnist_digits(options.from_dir, options.allow_other_sizes)
    refuse_given(options, ["from_dir"], "with --source mnist")
    if options.allow_other_sizes:
        raise InputError("--allow-other-sizes; allowed: with --source mnist")
    return sklearn_digits(options.seed or DEFAULT_SEED)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("digits", __doc__)
    add_destination(parser)
    add = parser.add_argument
    add("--source", choices=SOURCES, default=SOURCES[0], help="(default: sklearn)")
    add(
        "--from-dir",
        type=Path,
        metavar="SRC",
        help="mnist: the four original files (.gz or not), a data set saved with "
        "save_to_disk, or the hub's parquet files",
    )
    add(
        "--seed",
        type=seed,
        metavar="N",
        help=f"sklearn: of the splits (default: {DEFAULT_SEED})",
    )
    add_other_sizes(parser, "MNIST's published files and numbers of each label")
    add_pictures(parser)
    options = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _prepare(options))


def _prepare(options: argparse.Namespace) -> None:
    prepare_pictures(options, "digits", _digits(options))
