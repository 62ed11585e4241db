"""Activations by name: feature maps of the linear attention and those of the FFN."""

import torch.nn.functional as F
from torch import Tensor

from .choices import choice


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
ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu}

FeatureMap = choice("FeatureMap", FEATURE_MAPS, __name__)
Activation = choice("Activation", ACTIVATIONS, __name__)
