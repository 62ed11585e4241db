"""Criterions that log sums over examples and derive their figures from the sums.

So figures do not depend on the division of examples among batches and workers.
"""

import math

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

# a loss that is learnt goes to 0, and fairseq's 3 decimals with it
DECIMALS = 6


def logged(loss: Tensor, ntokens: int, nsentences: int, sample_size: int) -> dict:
    """The values that fairseq's own criterions log."""
    return {
        "loss": loss.data,
        "ntokens": ntokens,
        "nsentences": nsentences,
        "sample_size": sample_size,
    }


def total(outputs: list[dict], key: str):
    """The sum of the values that batches logged under a name."""
    return sum(each[key] for each in outputs if key in each)


class SummedCriterion(FairseqCriterion):
    """Logs ``loss``; with ``right``, in bits as fairseq has it, and ``accuracy``."""

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """Log the means over all batches and workers."""
        count = float(total(logging_outputs, "sample_size"))
        loss = float(total(logging_outputs, "loss")) / count
        if not any("right" in each for each in logging_outputs):
            metrics.log_scalar("loss", loss, count, round=DECIMALS)
            return
        metrics.log_scalar("loss", loss / math.log(2), count, round=DECIMALS)
        right = float(total(logging_outputs, "right")) / count
        metrics.log_scalar("accuracy", 100 * right, count, round=DECIMALS)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Yes, all of them."""
        return True


def predicted(logits: Tensor) -> Tensor:
    """int64 (B,): the class of the greatest logit; -1 where one is NaN or infinite."""
    return logits.argmax(-1).where(logits.isfinite().all(-1), -1)


def classification_loss(logits: Tensor, targets: Tensor, ntokens: int):
    """Cross entropy of classes: (B, classes) logits and int64 (B,) targets.

    Returns:
        the loss in nats, summed in float32, the number of examples, and what is logged.
    """
    log_probabilities = F.log_softmax(logits, dim=-1, dtype=torch.float32)
    loss = F.nll_loss(log_probabilities, targets, reduction="sum")
    count = targets.numel()
    sums = logged(loss.double(), ntokens, count, count)
    return loss, count, sums | {"right": (predicted(logits) == targets).sum().double()}


@register_criterion("sequence_classification", dataclass=FairseqDataclass)
class SequenceClassificationCriterion(SummedCriterion):
    """Cross entropy and accuracy of classified sequences, for ``long_range_arena``."""

    def forward(self, model, sample, reduce=True):
        """The summed loss, the number of examples, and what is logged."""
        logits = model(**sample["net_input"])
        return classification_loss(logits, sample["target"], sample["ntokens"])
