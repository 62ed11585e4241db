"""Activations by name: feature maps of the linear attention and those of the FFN."""

import torch.nn.functional as F

from ..ops import FEATURE_MAPS
from .choices import choice

ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu}

FeatureMap = choice("FeatureMap", FEATURE_MAPS, __name__)
Activation = choice("Activation", ACTIVATIONS, __name__)
