"""fairseq criterions; importing them registers them."""

from .sentence_prediction import SentencePredictionMetricsCriterion

__all__ = ["SentencePredictionMetricsCriterion"]
