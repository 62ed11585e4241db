"""Options that the preparation commands share, and the types of option values."""

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path


def command_parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser whose help shows ``description`` as written and every default."""
    return argparse.ArgumentParser(
        prog=f"python -m data_prep.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_destination(parser: argparse.ArgumentParser) -> None:
    """``--dest`` and ``--overwrite``."""
    parser.add_argument(
        "--dest",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder to make; it appears only when it is complete. Work in progress "
        "is in DIR.partial, from where a killed run goes on",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace a DIR that an earlier run made, e.g. with other settings",
    )


def add_pictures(parser: argparse.ArgumentParser) -> None:
    """``--pictures``."""
    parser.add_argument(
        "--pictures",
        type=Path,
        metavar="FILE.png",
        help="also write a sheet of the first pictures of train",
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """``--workers``, by default one per core this process may use."""
    parser.add_argument(
        "--workers",
        type=positive_int,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="processes that encode text (default: %(default)s, the usable cores)",
    )


def positive_int(text: str) -> int:
    """An option value that must be 1 or more."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed are integers from 1")
    return value


def number_between(low: float, high: float) -> Callable[[str], float]:
    """The type of an option value that must lie in [low, high]."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            allowed = f"numbers from {low} to {high}"
            raise argparse.ArgumentTypeError(f"{text!r}: allowed are {allowed}")
        return value

    return number
