"""fairseq criterions; importing them registers them."""

from . import partial_cross_entropy, sentence_prediction  # noqa: F401
from .chunked_cross_entropy import ChunkedCrossEntropy, ChunkedMaskedLm
from .sums import SequenceClassificationCriterion

__all__ = ["ChunkedCrossEntropy", "ChunkedMaskedLm", "SequenceClassificationCriterion"]
