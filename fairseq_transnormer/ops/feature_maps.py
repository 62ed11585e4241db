"""Feature maps of linear attention by name: phi, applied to queries and keys."""

import torch.nn.functional as F
from torch import Tensor


def one_plus_elu(x: Tensor) -> Tensor:
    """1 + elu(x), which is positive (Katharopoulos et al., 2020, equation 7)."""
    return F.elu(x) + 1


def identity(x: Tensor) -> Tensor:
    """x itself."""
    return x


FEATURE_MAPS = {
    "elu": F.elu,
    "1+elu": one_plus_elu,
    "relu": F.relu,
    "identity": identity,
}


def check_feature_map(name: str) -> None:
    """Raise ValueError, with the list of names, unless ``name`` is one of them."""
    if name not in FEATURE_MAPS:
        raise ValueError(f"feature_map={name!r}; allowed: {', '.join(FEATURE_MAPS)}")
