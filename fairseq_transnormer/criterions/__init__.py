"""fairseq criterions; importing them registers them."""

from .sequence_classification import SequenceClassificationCriterion

__all__ = ["SequenceClassificationCriterion"]
