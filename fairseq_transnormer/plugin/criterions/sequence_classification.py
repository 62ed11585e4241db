"""``sequence_classification``: cross entropy and accuracy of whole sequences."""

from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass

from .sums import SummedCriterion, classification_loss


@register_criterion("sequence_classification", dataclass=FairseqDataclass)
class SequenceClassificationCriterion(SummedCriterion):
    """For samples of ``long_range_arena``; the model gives logits (B, classes)."""

    def forward(self, model, sample, reduce=True):
        """The summed loss, the number of examples, and what is logged."""
        logits = model(**sample["net_input"])
        return classification_loss(logits, sample["target"], sample["ntokens"])
