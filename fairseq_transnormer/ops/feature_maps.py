"""Feature maps: phi, which queries and keys of linear attention go through."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import accumulation_dtype


def one_plus_elu(x: Tensor) -> Tensor:
    """1 + elu(x), which is positive (Katharopoulos et al., 2020, equation 7).

    Below 0 it is exp(x), of which the sum of elu(x) and 1 would leave little.
    """
    wide = x.to(accumulation_dtype(x.dtype))
    positive = F.relu(wide)
    # not clamp(max=0), whose gradient at 0 is 0 from torch 2.14 on
    return ((wide - positive).exp() + positive).to(x.dtype)


def identity(x: Tensor) -> Tensor:
    """x itself."""
    return x


# phi, which queries and keys go through, by name
FEATURE_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": F.elu,
    "1+elu": one_plus_elu,
    "relu": F.relu,
    "identity": identity,
}
# phi'(x) as a function of phi(x), for those that it determines well: at relu's kink the
# last bit of phi(x) decides
DERIVATIVES_FROM_OUTPUT: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": lambda y: (y + 1).clamp(0, 1),
    "1+elu": lambda y: y.clamp(0, 1),
    "identity": torch.ones_like,
}


def check_feature_map(name: str) -> None:
    """Raise ValueError, with the list of names, unless ``name`` is one of them."""
    if name not in FEATURE_MAPS:
        raise ValueError(f"feature_map={name!r}; allowed: {', '.join(FEATURE_MAPS)}")
