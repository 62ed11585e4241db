"""Fields of configurations: a default, a help text and what is allowed.

A closed set of names is a ``Choice``: a wrong name is an error that lists all of them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
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
    float: (Real, "a finite number"),
    str: (str, "text"),
}
BOUNDS = {"at_least": operator.ge, "above": operator.gt, "below": operator.lt}
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
    if value is None and each.default is None:
        return value
    of_optional = [arg for arg in get_args(kind) if arg is not NoneType]
    takes, words = TYPES.get(of_optional[0] if of_optional else kind, (object, ""))
    if TRAINING_ONLY not in each.metadata:  # fairseq's own, whose types are loose
        takes = object
    bounds: dict[str, Any] = {
        key: each.metadata[key] for key in BOUNDS if each.metadata.get(key) is not None
    }
    fits = isinstance(value, takes)
    if isinstance(value, bool):  # to Python an integer
        fits = takes in (bool, object)
    if not (
        fits
        and (not isinstance(value, float) or math.isfinite(value))
        and all(BOUNDS[key](value, bound) for key, bound in bounds.items())
    ):
        allowed = [words, *(f"{k.replace('_', ' ')} {v}" for k, v in bounds.items())]
        raise ValueError(f"{each.name}={value!r}; allowed: {', '.join(allowed)}")
    return value
