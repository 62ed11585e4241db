"""Reads the YAML files of tables and presets, and holds them to the keys they know."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from .errors import ReproduceError


def read_mapping(path: Path, allowed: set[str], required: set[str]) -> dict[str, Any]:
    """The mapping in ``path``.

    Raises:
        ReproduceError: it cannot be read, or a key is unknown or missing.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReproduceError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ReproduceError(f"{path}: no YAML: {error}") from error
    return checked_mapping(str(path), content, allowed, required)


def checked_mapping(
    where: str, content: Any, allowed: set[str], required: set[str] = frozenset()
) -> dict[str, Any]:
    """``content`` if it is a mapping with these keys; None counts as an empty one."""
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ReproduceError(f"{where}: {content!r} is no mapping")
    unknown = sorted(map(str, set(content) - allowed))
    if unknown:
        raise ReproduceError(
            f"{where}: unknown key {', '.join(unknown)}; allowed: "
            f"{', '.join(sorted(allowed))}"
        )
    missing = sorted(required - set(content))
    if missing:
        raise ReproduceError(f"{where}: {', '.join(missing)} is missing")
    return content


def named_file(folder: Path, name: str, kind: str) -> Path:
    """``folder``/``name``.yaml, or ``name`` itself if it is the path of a YAML file."""
    if name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise ReproduceError(f"{kind} {name}: no such file")
        return Path(name)
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(names_in(folder)) or f"none, {folder} has no YAML files"
        raise ReproduceError(f"{kind} {name!r} is not known; allowed: {known}")
    return path


def names_in(folder: Path) -> list[str]:
    """Names of the YAML files of a folder, in order."""
    return in_order(path.stem for path in folder.glob("*.yaml"))


def in_order(names: Iterable[str]) -> list[str]:
    """table9 before table10."""
    return sorted(names, key=lambda name: (name.rstrip("0123456789"), len(name), name))
