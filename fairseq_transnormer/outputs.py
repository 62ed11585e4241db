"""Option types for signatures: files and folders to write, made before any work."""

from __future__ import annotations

from collections.abc import Callable
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
