"""fairseq optimizers."""

from . import radam as radam
