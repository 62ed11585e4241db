"""Options that the preparation commands share."""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from data_prep.folders.destination import resolved
from data_prep.folders.errors import InputError
from fairseq_transnormer import cli
from fairseq_transnormer.argument_types import integer_between

MAX_WORKERS = 1024


def command_parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser whose help shows ``description`` as written and every default."""
    return cli.command_parser(f"data_prep {name}", description, allow_abbrev=False)


def add_destination(parser: argparse.ArgumentParser) -> None:
    """``--dest`` and ``--overwrite``."""
    parser.add_argument(
        "--dest",
        type=destination_folder,
        required=True,
        metavar="DIR",
        help="folder to make; it appears only when it is complete, where a link points "
        "if DIR is one. Work in progress is in DIR.partial, which the same command "
        "resumes",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the data that an earlier run made in DIR, and begin anew where "
        "DIR.partial has unfinished work with other settings; files of your own in "
        "them, and files that were changed, are refused",
    )


def destination_folder(text: str) -> Path:
    if not text or text != text.encode("utf-8", "ignore").decode():
        raise argparse.ArgumentTypeError(
            f"{text!r}: allowed is the name of a folder, in UTF-8"
        )
    try:
        return resolved(Path(text))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_other_sizes(parser: argparse.ArgumentParser, sizes: str) -> None:
    """``--allow-other-sizes``; ``sizes`` says what is checked without it."""
    parser.add_argument(
        "--allow-other-sizes",
        action="store_true",
        help=f"for a cut-down copy: do not insist on {sizes}",
    )


def add_pictures(parser: argparse.ArgumentParser) -> None:
    """``--pictures``."""
    parser.add_argument(
        "--pictures",
        type=_picture,
        metavar="FILE.png",
        help="also write a sheet of the first pictures of train; another FILE that is "
        "there already is replaced with --overwrite only",
    )


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"{text!r}: allowed are names *.png")
    return path


def add_workers(parser: argparse.ArgumentParser) -> None:
    """``--workers``, by default one per core this process may use."""
    parser.add_argument(
        "--workers",
        type=integer_between(1, MAX_WORKERS),
        default=usable_cores(),
        metavar="N",
        help=f"processes that encode text (default: {usable_cores()}, the usable "
        "cores)",
    )


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def refuse_given(
    options: argparse.Namespace, names: Iterable[str], allowed: str
) -> None:
    """Raises InputError for the first option of ``names`` that is not None."""
    for name in names:
        value = getattr(options, name)
        if value is not None:
            shown = " ".join(map(str, value)) if isinstance(value, list) else value
            option = "--" + name.replace("_", "-")
            raise InputError(f"{option} {shown}; allowed: {allowed}")
