"""Mappings read from files, and what the values of their keys must be."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kind:
    """What a value must be.

    Attributes:
        allowed: in words, for messages.
        fits: whether a value is of this kind.
    """

    allowed: str
    fits: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


TEXT = Kind("a text", lambda value: isinstance(value, str))
BOOLEAN = Kind("true or false", lambda value: isinstance(value, bool))
ABOVE_0 = Kind(
    "a number above 0",
    lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 < value < math.inf
    ),
)
COUNT = Kind("a whole number from 0", lambda value: _is_whole(value) and value >= 0)
POSITIVE = Kind("a whole number from 1", lambda value: _is_whole(value) and value >= 1)
MAPPING = Kind("a mapping", lambda value: isinstance(value, dict))


def list_of(kind: Kind) -> Kind:
    """A list, every entry of which is of ``kind``."""
    return Kind(
        f"a list, each {kind.allowed}",
        lambda value: isinstance(value, list) and all(map(kind.fits, value)),
    )


def mapping_of(kind: Kind) -> Kind:
    """A mapping of texts to what is of ``kind``."""
    return Kind(
        f"a mapping of names, each to {kind.allowed}",
        lambda value: (
            isinstance(value, dict)
            and all(isinstance(key, str) for key in value)
            and all(map(kind.fits, value.values()))
        ),
    )


def check_values(
    where: str,
    content: Any,
    kinds: Mapping[str, Kind],
    required: Iterable[str] = (),
) -> dict[str, Any]:
    """``content`` if it is a mapping whose values are of their kinds.

    Keys without a kind may have any value.

    Args:
        where: the file, and the place in it, for messages.
        content: what was read.
        kinds: key -> what its value must be.
        required: keys that must be there.

    Raises:
        ValueError: it is no mapping, lacks a key, or a value is of another kind.
    """
    if not isinstance(content, dict):
        raise ValueError(f"{where}: {shown(content)}; allowed: a mapping")
    missing = [key for key in required if key not in content]
    if missing:
        raise ValueError(f"{where}: {', '.join(missing)} is missing")
    for key, kind in kinds.items():
        if key in content and not kind.fits(content[key]):
            raise ValueError(
                f"{where}: {key}={shown(content[key])}; allowed: {kind.allowed}"
            )
    return content


def read_json(
    path: Path, kinds: Mapping[str, Kind], required: Iterable[str] = ()
) -> dict[str, Any]:
    """The mapping in a JSON file, held to ``check_values``.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no JSON, or not such a mapping.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON ({error})") from error
    return check_values(str(path), content, kinds, required)


def shown(value: Any) -> str:
    """A value in a line of a message, cut short."""
    return reprlib.repr(value)
