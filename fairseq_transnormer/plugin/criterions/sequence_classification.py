"""``sequence_classification``: cross entropy and accuracy of whole sequences.

What is logged are sums over examples, so that figures do not depend on how examples are
divided among batches and workers.
"""

import math

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics


@register_criterion("sequence_classification", dataclass=FairseqDataclass)
class SequenceClassificationCriterion(FairseqCriterion):
    """Logged: ``loss``, in bits as fairseq has it, and ``accuracy``, in percent."""

    def forward(self, model, sample, reduce=True):
        """Loss of a batch.

        Args:
            model: gives logits (B, classes) for the sample's ``net_input``.
            sample: of the task ``long_range_arena``.

        Returns:
            the summed loss, the number of examples, and what is logged.
        """
        logits = model(**sample["net_input"])
        targets = sample["target"]
        count = targets.numel()
        log_probabilities = F.log_softmax(logits, dim=-1, dtype=torch.float32)
        loss = F.nll_loss(log_probabilities, targets, reduction="sum")
        logged = {
            "loss": loss.detach().double(),
            "correct": (logits.argmax(dim=-1) == targets).sum().double(),
            "ntokens": sample["ntokens"],
            "nsentences": count,
            "sample_size": count,
        }
        return loss, count, logged

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """Log the averages over the examples of all workers."""

        def total(key: str):
            return sum(log.get(key, 0) for log in logging_outputs)

        count = total("sample_size")
        bits = total("loss") / count / math.log(2)
        metrics.log_scalar("loss", bits, count, round=6)
        metrics.log_scalar("accuracy", 100 * total("correct") / count, count, round=6)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Yes, all of them."""
        return True
