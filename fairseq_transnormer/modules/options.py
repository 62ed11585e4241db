"""Fields of configurations: a default, a help text and what is allowed.

A closed set of names is a ``Choice``: a wrong name is an error that lists all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, field, fields
from enum import Enum, EnumMeta
from numbers import Integral, Real
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args

import torch.nn.functional as F
from torch import Tensor

from ..ops import FEATURE_MAPS

if TYPE_CHECKING:
    from enum import _EnumDict

# type of a field -> what its values are, in Python and in words
TYPES: dict[Any, tuple[type, str]] = {
    bool: (bool, "True, False"),
    int: (Integral, "an integer"),
    float: (Real, "a number"),
    str: (str, "text"),
}
# metadata of fields that do not change what a trained model computes
TRAINING_ONLY = "training_only"


class _NamedByValues(EnumMeta):
    """Takes the members of an enumeration from ``class NAME(Choice, values=...)``."""

    @classmethod
    def __prepare__(  # type: ignore[override]  # EnumMeta's own is not as type's, too
        metacls,
        cls: str,
        bases: tuple[type, ...],
        values: Iterable[str] = (),
        **keywords: Any,
    ) -> _EnumDict:
        members = super().__prepare__(cls, bases, **keywords)
        for value in values:
            members[value] = value
        return members

    def __new__(
        metacls,
        name: str,
        bases: tuple[type, ...],
        members: _EnumDict,
        values: Iterable[str] = (),
        **keywords: Any,
    ) -> _NamedByValues:
        return super().__new__(metacls, name, bases, members, **keywords)


class Choice(str, Enum, metaclass=_NamedByValues):
    """Base of the enumerations of configuration values. A member is its own string.

    ``class Pooling(Choice, values=("first", "mean"))`` has two members, whose names,
    which need not be identifiers, equal their values: OmegaConf looks members up by
    name and the command line by value.
    """

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        allowed = ", ".join(member.value for member in cls)
        raise ValueError(f"{cls.__name__}={value!r}; allowed: {allowed}")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "relu": F.relu,
}


class FeatureMap(Choice, values=FEATURE_MAPS):
    """phi of linear attention."""


class Activation(Choice, values=ACTIVATIONS):
    """What a channel mixer puts its inner features through."""


Value = TypeVar("Value")


def described(
    default: Value,
    help_text: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    training_only: bool = False,
) -> Value:
    """A dataclass field; to a type checker its default, as ``dataclasses.field`` is.

    Args:
        default: its default; a ``Choice`` allows its members.
        help_text: what the command line prints.
        at_least, above, below: bounds of a number. Every number is finite besides.
        training_only: trained weights compute the same with another value, which
            changes how they are trained, or what is logged, or the cost. A run may
            resume with another value.
    """
    bounds = {"at_least": at_least, "above": above, "below": below}
    return field(
        default=default,
        metadata={"help": help_text, TRAINING_ONLY: training_only, **bounds},
    )


def probability(default: float, help_text: str) -> float:
    """A field for a dropout probability."""
    return described(default, help_text, at_least=0, below=1, training_only=True)


def check_fields(config: Any) -> None:
    """Turn names into ``Choice`` members and hold numbers to their bounds.

    Raises:
        ValueError: a value is not allowed; the field, the value and what is allowed
            are named.
    """
    for each in fields(config):
        setattr(config, each.name, checked(each, getattr(config, each.name)))


def checked(each: Field[Any], value: Any) -> Any:
    """The value of a field; a name as the ``Choice`` that it names.

    Raises:
        ValueError: as ``check_fields``.
    """
    kind = each.type
    if isinstance(kind, type) and issubclass(kind, Choice):
        if value not in list(kind):
            raise ValueError(f"{each.name}={value!r}; allowed: {', '.join(kind)}")
        return kind(value)
    if value is not None or each.default is not None:
        if TRAINING_ONLY in each.metadata:  # one of ours: fairseq's types are loose
            _check_type(each, value)
        check_number(each.name, value, each.metadata)
    return value


def _check_type(each: Field[Any], value: Any) -> None:
    of_optional = [kind for kind in get_args(each.type) if kind is not NoneType]
    kind = of_optional[0] if of_optional else each.type
    if kind not in TYPES:
        return
    takes, words = TYPES[kind]
    # to Python True is the integer 1
    is_other_bool = isinstance(value, bool) and kind is not bool
    if is_other_bool or not isinstance(value, takes):
        allowed = ", ".join(filter(None, (words, _range(each.metadata))))
        raise ValueError(f"{each.name}={value!r}; allowed: {allowed}")


def check_number(name: str, value: Any, bounds: Mapping[str, Any]) -> None:
    """Hold a number to its bounds; anything else passes where there are none.

    Args:
        name: of the field, for the message.
        value: its value.
        bounds: ``at_least``, ``above``, ``below`` and ``at_most``, where there are any.

    Raises:
        ValueError: it is out of bounds, infinite or NaN.
    """
    least, above, below, most = (
        bounds.get(key) for key in ("at_least", "above", "below", "at_most")
    )
    # NaN is in no comparison
    if not (
        (not isinstance(value, float) or math.isfinite(value))
        and (least is None or value >= least)
        and (above is None or value > above)
        and (below is None or value < below)
        and (most is None or value <= most)
    ):
        allowed = _range(bounds)
        if isinstance(value, float) and not math.isfinite(value):
            allowed = ", ".join(filter(None, (allowed, "finite")))
        raise ValueError(f"{name}={value}; allowed: {allowed}")


def _range(bounds: Mapping[str, Any]) -> str:
    words = {
        "at_least": "at least",
        "above": "above",
        "below": "below",
        "at_most": "at most",
    }
    return ", ".join(
        f"{word} {bounds[key]}"
        for key, word in words.items()
        if bounds.get(key) is not None
    )
