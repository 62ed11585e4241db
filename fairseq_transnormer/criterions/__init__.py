"""fairseq criterions; importing them registers them."""

from .sentence_prediction import SentencePredictionMetricsCriterion
from .sequence_classification import SequenceClassificationCriterion

__all__ = ["SentencePredictionMetricsCriterion", "SequenceClassificationCriterion"]
