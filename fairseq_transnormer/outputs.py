"""Option types for paths, which are made before any work, and printed tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from .data.whole_files import make_folder, make_folder_of


def checked_path(metavar: str, check: Callable[[Path, str], None]) -> Any:
    """For ``Annotated``: the path of an option, checked by ``check(path, name)``.

    The check runs before any work that could be lost.
    """

    def path(words: list[str]) -> Path:
        check(Path(words[0]), metavar)
        return Path(words[0])

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=path,
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    )


# a file to write, whose folder is made, and a folder, which is made
OutputFile = Annotated[Path | None, checked_path("FILE", make_folder_of)]
OutputFolder = Annotated[Path, checked_path("DIR", make_folder)]


def named_paths(arguments: Iterable[str]) -> dict[str, Path]:
    """Name -> path of each "NAME=PATH", or "PATH", whose name is the path itself.

    An existing path may contain "=".

    Raises:
        ValueError: two paths have one name, or there is no path.
    """
    paths: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or Path(argument).exists():
            name, path = argument, argument
        if name in paths:
            raise ValueError(f"{name!r} names two files; give each a NAME=PATH")
        paths[name] = Path(path)
    if not paths:
        raise ValueError("a [NAME=]PATH is needed")
    return paths


# any number of files to read, each with a name for the output
NamedPaths = Annotated[
    Mapping[str, Path],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="[NAME=]PATH ...",
        instance_from_str=named_paths,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [f"{k}={v}" for k, v in value.items()],
    ),
]


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]], text=1) -> str:
    """A table; its first ``text`` columns are text, the others numbers."""
    rule = [*["---"] * text, *["--:"] * (len(header) - text)]
    lines = [f"| {' | '.join(map(str, row))} |" for row in (header, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])
