"""fairseq optimizers."""

from .. import models as models  # the work-arounds for fairseq come first
from . import radam as radam
