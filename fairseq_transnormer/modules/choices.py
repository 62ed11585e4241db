"""Closed sets of names: a wrong name is an error that lists the right ones."""

from collections.abc import Iterable
from enum import Enum

import torch.nn.functional as F

from ..ops import FEATURE_MAPS


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
