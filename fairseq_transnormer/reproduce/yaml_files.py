"""Reads the YAML files of tables and presets, and holds them to the keys they know."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..data.typed_mappings import ANY, Kind, check_values, mapping_of, shown
from .errors import ReproduceError

DEEPEST = 100
# key of the configuration -> value
OVERRIDES = mapping_of(ANY)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Refuses a key that is there twice, of which YAML's own takes the last."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._seen: set[int] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what ``<<`` merges among the keys, where they may be there again.

        Called of a mapping before it is made, and before it is merged into another,
        which may be sooner.
        """
        if id(node) not in self._seen:
            self._seen.add(id(node))
            _check_keys(node)
        super().flatten_mapping(node)


def _check_keys(node: yaml.MappingNode) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            continue  # no key of a dict; what follows says so
        key, line = (key_node.tag, key_node.value), key_node.start_mark.line + 1
        if key in lines:
            raise ValueError(
                f"lines {lines[key]} and {line}: key {shown(key[1])} twice; "
                "allowed: each key once in a mapping"
            )
        lines[key] = line


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """The mapping in ``path``, nothing else being known about it.

    Raises:
        ReproduceError: it cannot be read, or is no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
        _check_depth(text)
        content = yaml.load(text, _Loader)
    except OSError as error:
        raise ReproduceError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise ReproduceError(f"{path}: no YAML: {why}") from error
    if not isinstance(content, dict):
        raise ReproduceError(f"{path}: {shown(content)}; allowed: a mapping")
    return content


def _check_depth(text: str) -> None:
    """Raise ValueError for what would exhaust the stack, which libyaml does not see."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise ValueError(f"nested more than {DEEPEST} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def read_mapping(
    path: Path, kinds: Mapping[str, Kind], required: Iterable[str]
) -> dict[str, Any]:
    """The mapping in ``path``, which ``checked_mapping`` looks at.

    Raises:
        ReproduceError: it cannot be read, a key is unknown or missing, or a value is of
            another kind.
    """
    return checked_mapping(str(path), read_yaml_mapping(path), kinds, required)


def checked_mapping(
    where: str, content: Any, kinds: Mapping[str, Kind], required: Iterable[str] = ()
) -> dict[str, Any]:
    """``content`` if it is a mapping with these keys; None counts as an empty one.

    Args:
        where: the file, and the place in it, for messages.
        content: what was read.
        kinds: allowed key -> what its value must be; None is the same as no key.
        required: keys that must be there.

    Raises:
        ReproduceError: it is something else.
    """
    content = {} if content is None else content
    if isinstance(content, dict):
        unknown = [str(key)[:80] for key in content if key not in kinds]
        if unknown:
            raise ReproduceError(
                f"{where}: unknown key {', '.join(unknown)}; allowed: "
                f"{', '.join(sorted(kinds))}"
            )
        content = {key: value for key, value in content.items() if value is not None}
    try:
        return check_values(where, content, kinds, required)
    except ValueError as error:
        raise ReproduceError(str(error)) from error


def named_mappings(where: str, content: Any) -> dict[str, Any]:
    """``content`` if it maps names to mappings, or to nothing; one at least.

    Raises:
        ReproduceError: it is something else, or has a name twice, as 1 and "1".
    """
    if (
        not isinstance(content, dict)
        or not content
        or not all(each is None or isinstance(each, dict) for each in content.values())
    ):
        raise ReproduceError(
            f"{where}: {shown(content)}; allowed: a mapping of names, one at least, "
            "each to a mapping"
        )
    found: dict[str, Any] = {}
    for name, each in content.items():
        if str(name) in found:
            raise ReproduceError(
                f"{where}: {name!s} as a text and as another value; allowed: each name "
                "once"
            )
        found[str(name)] = each
    return found


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
