"""Cross entropy of a part of a sequence, such as a copy or the pixels of an image."""

from dataclasses import dataclass
from typing import Optional

import torch
from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from ...modules.options import described
from .sums import SummedCriterion, logged


@dataclass
class PartialCrossEntropyConfig(FairseqDataclass):
    """The targets that count."""

    separator: Optional[str] = described(  # noqa: UP045 (read by fairseq)
        None, "only targets after the first of these count; all of a line by default"
    )


@register_criterion("partial_cross_entropy", dataclass=PartialCrossEntropyConfig)
class PartialCrossEntropy(SummedCriterion):
    """Cross entropy of the targets that count, with one line per sample.

    These are the symbols of the line, after the first ``separator`` if one is named.
    The end of the line never counts: training does not see it. ``loss`` is the mean of
    -log2 p over these targets. ``accuracy`` is the percentage that have the highest
    probability.
    """

    def __init__(self, task, separator: str | None):
        super().__init__(task)
        dictionary = task.target_dictionary
        self.eos, self.name, self.separator = dictionary.eos(), separator, None
        if separator is not None:
            if separator not in dictionary:
                raise ValueError(
                    f"separator={separator!r}; allowed: symbols of the dictionary"
                )
            self.separator = dictionary.index(separator)

    def counted(self, target: Tensor) -> Tensor:
        """int64 (B, N) -> bool (B, N): which targets count."""
        counted = target.ne(self.padding_idx) & target.ne(self.eos)
        if self.separator is not None:
            separators = target.eq(self.separator).long()
            counted &= separators.cumsum(1) > separators
        return counted

    def forward(self, model, sample, reduce=True):
        """Loss in nats, the number of targets that count, and what is logged.

        Raises:
            ValueError: nothing counts in a line.
        """
        net_output = model(**sample["net_input"])
        log_probs = model.get_normalized_probs(net_output, log_probs=True)
        target = model.get_targets(sample, net_output)
        counted = self.counted(target)
        if not counted.any(1).all():
            raise ValueError(
                f"separator={self.name!r}: a line has no target that counts; allowed: "
                "lines with symbols, after a separator if one is named"
            )
        of_target = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        # not by a product: 0 times an infinite loss is no number
        losses = torch.where(counted, -of_target, torch.zeros_like(of_target))
        loss, size = losses.sum() if reduce else losses, int(counted.sum())
        right = (log_probs.argmax(-1).eq(target) & counted).sum()
        sums = logged(loss.double(), sample["ntokens"], target.shape[0], size)
        return loss, size, sums | {"right": right}

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """The means, and the perplexity of the loss."""
        super().reduce_metrics(logging_outputs)
        metrics.log_derived(
            "ppl", lambda meters: utils.get_perplexity(meters["loss"].avg)
        )
