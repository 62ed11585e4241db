"""fairseq criterions; importing them registers them."""

from .chunked_cross_entropy import ChunkedCrossEntropy, ChunkedMaskedLm
from .partial_cross_entropy import PartialCrossEntropy
from .sentence_prediction import SentencePredictionMetricsCriterion
from .sequence_classification import SequenceClassificationCriterion

__all__ = [
    "ChunkedCrossEntropy",
    "ChunkedMaskedLm",
    "PartialCrossEntropy",
    "SentencePredictionMetricsCriterion",
    "SequenceClassificationCriterion",
]
