"""The token mixers that ``attention_types`` can name, and the notation of that list."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from torch import nn

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Mixer = TypeVar("Mixer", bound=type[nn.Module])
# attentions, which are part of a TransNormerLayer, and complete layers; both are called
# with a LayerConfig and causal=
ATTENTIONS: dict[str, type[nn.Module]] = {}
LAYERS: dict[str, type[nn.Module]] = {}
# name -> dataclasses of the fields that it reads; the configuration has all of them
OPTIONS: dict[str, tuple[type[DataclassInstance], ...]] = {}


def register_attention(
    name: str, *options: type[DataclassInstance]
) -> Callable[[Mixer], Mixer]:
    """Class decorator: make an ``Attention`` known to configurations as ``name``.

    Args:
        name: for ``attention_types``.
        *options: dataclasses of the ``options.described`` fields that it reads. Every
            layer configuration then has these fields. Attentions may share a dataclass,
            but not inherit from another's. Presets do not scale unregistered fields,
            and a resumed run does not compare them.

    Raises:
        ValueError: the name is taken.
    """
    return _register(ATTENTIONS, name, *options)


def register_layer(
    name: str, *options: type[DataclassInstance]
) -> Callable[[Mixer], Mixer]:
    """Class decorator: make a whole layer known to configurations as ``name``.

    It is built like an ``Attention``. Its ``forward`` is like that of a
    ``TransNormerLayer``: it has its own residual connection and norms.

    Args:
        name, *options: as in ``register_attention``.
    """
    return _register(LAYERS, name, *options)


def token_mixers(*, causal: bool = False) -> list[str]:
    """The names of all registered attentions and layers.

    causal: only those for causal models.
    """
    return sorted(
        name
        for name, kind in (ATTENTIONS | LAYERS).items()
        if not causal or getattr(kind, "supports_causal", True)
    )


def parse_attention_types(notation: str) -> list[str]:
    """Expand "diag*3,norm*3" to one registered name per layer.

    Raises:
        ValueError: a name is not registered, a count is not a positive number, or
            there is no layer.
    """
    names: list[str] = []
    for part in str(notation).split(","):
        match = re.fullmatch(r"\s*([^*\s]+)\s*(?:\*\s*([1-9][0-9]*)\s*)?", part)
        if match is None or match[1] not in (*ATTENTIONS, *LAYERS):
            raise ValueError(
                f"attention_types={notation!r}: {part.strip()!r} is not NAME or "
                f"NAME*COUNT; allowed names: {', '.join(token_mixers())}"
            )
        names += [match[1]] * int(match[2] or 1)
    return names


def unused_options(*notations: str) -> set[str]:
    """Fields of attentions and layers that the models do not use.

    Args:
        *notations: the ``attention_types`` of each model. The result is empty if one
            cannot be parsed, such as "" for fairseq's own models.
    """
    try:
        names = {name for each in notations for name in parse_attention_types(each)}
    except ValueError:
        return set()
    used: set[str] = set()
    unused: set[str] = set()
    for name, options in OPTIONS.items():
        of = used if name in names else unused
        of.update(each.name for kind in options for each in fields(kind))
    return unused - used


def _register(
    kind: dict[str, type[nn.Module]], name: str, *options: type[DataclassInstance]
) -> Callable[[Mixer], Mixer]:
    def register(cls: Mixer) -> Mixer:
        if name in ATTENTIONS or name in LAYERS:
            raise ValueError(
                f"attention {name!r} is registered already; allowed: a name other than "
                f"{', '.join(token_mixers())}"
            )
        kind[name] = cls
        OPTIONS[name] = options
        return cls

    return register
