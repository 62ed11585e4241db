"""Options that several commands have, and how values are refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from fairseq_transnormer.outputs import checked_path

SHOWN = 3
CORES = len(os.sched_getaffinity(0))


File = Annotated[Path, tyro.conf.arg(metavar="FILE")]
Directory = Annotated[Path, tyro.conf.arg(metavar="DIR")]
# None: not given
MaybeDirectory = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


@dataclass(frozen=True)
class Place:
    """Where prepared data go."""

    dest: Directory
    """folder to make; it appears only when it is complete"""
    overwrite: bool = False
    """replace the data of an earlier run; other or changed files are refused"""


@dataclass(frozen=True)
class Source:
    """Where published data come from."""

    from_dir: MaybeDirectory = None
    """local copy; None: the Hugging Face hub"""
    allow_other_sizes: bool = False
    """for a cut-down copy: do not insist on the published files and sizes"""


def _require_png(path: Path, name: str) -> None:
    if path.suffix.lower() != ".png":
        raise ValueError(f"{name} must be a name *.png, got {path}")


Counts = Annotated[
    tuple[int, int, int],
    tyro.conf.arg(metavar="TRAIN VALID TEST", help="examples of each split"),
]
Paths = tyro.conf.UseAppendAction[
    Annotated[tuple[tuple[Path, ...], ...], tyro.conf.arg(metavar="PATH ...")]
]
# a sheet of the first images of train
Pictures = Annotated[
    Path | None,
    checked_path("FILE.png", _require_png),
    tyro.conf.arg(
        help="also write a sheet of the first images of train; another FILE that is "
        "there already is replaced with --overwrite only",
    ),
]
Seed = Annotated[int, tyro.conf.arg(help="another seed, other data")]
Workers = Annotated[int, tyro.conf.arg(help="processes that work")]


def option(name: str) -> str:
    """As it is typed: ``min_count`` is --min-count."""
    return "--" + name.replace("_", "-")


def listed(names: Sequence[object]) -> str:
    """The first names, for a message."""
    more = len(names) - SHOWN
    shown = ", ".join(map(str, names[:SHOWN]))
    return f"{shown} and {more} more" if more > 0 else shown


def at_least(low: int, **values: int | None) -> None:
    """Raise ValueError for the first option below ``low``; None is none given."""
    for name, value in values.items():
        if value is not None and value < low:
            raise ValueError(f"{option(name)} must be {low} or more, got {value}")


def refuse_given(allowed: str, **values: Any) -> None:
    """Raise ValueError for the first option that is given: not None, False, ()."""
    for name, value in values.items():
        if value is not None and value is not False and value != ():
            raise ValueError(f"{option(name)}: allowed {allowed} only")
