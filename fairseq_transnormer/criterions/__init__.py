"""fairseq criterions; importing them registers them."""

from .partial_cross_entropy import PartialCrossEntropy
from .sentence_prediction import SentencePredictionMetricsCriterion
from .sequence_classification import SequenceClassificationCriterion

__all__ = [
    "PartialCrossEntropy",
    "SentencePredictionMetricsCriterion",
    "SequenceClassificationCriterion",
]
