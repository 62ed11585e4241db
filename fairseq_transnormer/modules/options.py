"""Fields of configurations: a default, a help text and what is allowed.

A closed set of names is a ``Choice``: a wrong name is an error that lists all of them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, field, fields
from enum import Enum
from typing import Any

import torch.nn.functional as F

from ..ops import FEATURE_MAPS

# metadata of fields that do not change what a trained model computes
TRAINING_ONLY = "training_only"


class Choice(str, Enum):
    """Base of the enumerations of configuration values. A member is its own string.

    Names equal values, since OmegaConf looks members up by name and the command line
    by value.
    """

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value):
        allowed = ", ".join(member.value for member in cls)
        raise ValueError(f"{cls.__name__}={value!r}; allowed: {allowed}")


def choice(name: str, values: Iterable[str], module: str) -> type[Choice]:
    """Make an enumeration of ``values``, called ``name`` in ``module`` (for pickle)."""
    return Choice(name, {value: value for value in values}, module=module)


ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu}

FeatureMap = choice("FeatureMap", FEATURE_MAPS, __name__)
Activation = choice("Activation", ACTIVATIONS, __name__)


def described(
    default,
    help_text: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    training_only: bool = False,
):
    """A dataclass field.

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


def probability(default: float, help_text: str):
    """A field for a dropout probability."""
    return described(default, help_text, at_least=0, below=1, training_only=True)


def check_fields(config) -> None:
    """Turn names into ``Choice`` members and hold numbers to their bounds.

    Raises:
        ValueError: a value is not allowed; the field, the value and what is allowed
            are named.
    """
    for each in fields(config):
        setattr(config, each.name, checked(each, getattr(config, each.name)))


def checked(each: Field, value: Any) -> Any:
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
        check_number(each.name, value, each.metadata)
    return value


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
