"""fairseq optimizers."""

from . import fused_adam as fused_adam
from . import radam as radam
