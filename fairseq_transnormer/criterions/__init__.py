"""fairseq criterions."""

from .. import models as models  # the work-arounds for fairseq come first
from . import partial_cross_entropy as partial_cross_entropy
