"""Fields of configurations: a default, a help text and the allowed values.

A closed set of names is a ``Choice``. A wrong name is an error that lists all names.
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

# type of a field -> type of its values, in Python and in words
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
    """Makes the members of an enumeration from ``class NAME(Choice, values=...)``."""

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

    ``class Pooling(Choice, values=("first", "mean"))`` has two members. Their names
    equal their values, and need not be identifiers. OmegaConf finds members by name,
    the command line by value.
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
    """The activation of a channel mixer's inner features."""


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
    """A dataclass field; a type checker sees its default, as in ``dataclasses.field``.

    Args:
        default: its default; a ``Choice`` allows its members.
        help_text: for the command line.
        at_least, above, below: bounds of a number. Every number must be finite.
        training_only: the value does not change what trained weights compute, only
            their training, the log or the cost. A run may resume with another value.
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
    """Turn names into ``Choice`` members and check the bounds of numbers.

    Raises:
        ValueError: a value is not allowed. The message has the field, the value and
            the allowed values.
    """
    for each in fields(config):
        setattr(config, each.name, checked(each, getattr(config, each.name)))


def checked(each: Field[Any], value: Any) -> Any:
    """The value of a field; a name becomes a ``Choice``.

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
    if TRAINING_ONLY not in each.metadata:  # fairseq's fields have loose types
        takes = object
    bounds: dict[str, Any] = {
        key: each.metadata[key] for key in BOUNDS if each.metadata.get(key) is not None
    }
    fits = isinstance(value, takes)
    if isinstance(value, bool):  # an integer in Python
        fits = takes in (bool, object)
    if not (
        fits
        and (not isinstance(value, float) or math.isfinite(value))
        and all(BOUNDS[key](value, bound) for key, bound in bounds.items())
    ):
        allowed = [words, *(f"{k.replace('_', ' ')} {v}" for k, v in bounds.items())]
        raise ValueError(f"{each.name}={value!r}; allowed: {', '.join(allowed)}")
    return value
