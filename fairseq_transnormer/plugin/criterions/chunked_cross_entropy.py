"""``chunked_cross_entropy`` and ``chunked_masked_lm``: fairseq's losses in less memory.

The losses and the logged values are those of fairseq's ``cross_entropy`` and
``masked_lm``. The model computes them itself, some rows of logits at a time. All logits
of a large vocabulary would be most of a step's memory and memory traffic.
"""

from __future__ import annotations

import math

from fairseq.criterions import register_criterion
from fairseq.criterions.cross_entropy import (
    CrossEntropyCriterion,
    CrossEntropyCriterionConfig,
)
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.utils import get_perplexity

from ...modules.masked_language_model import target_positions
from ...modules.padding import find_padding
from ..models import TransNormerEncoderModel, TransNormerLanguageModel
from .sums import logged, total


def padding_of(sample: dict, padding_idx: int) -> str:
    """The places of pads in a batch's ``src_tokens``, see ``modules.padding``."""
    return find_padding(sample["net_input"]["src_tokens"].eq(padding_idx))


@register_criterion("chunked_cross_entropy", dataclass=CrossEntropyCriterionConfig)
class ChunkedCrossEntropy(CrossEntropyCriterion):
    """Cross entropy of the next tokens; ``cross_entropy`` for language models."""

    def look_at_batch(self, sample: dict) -> dict:
        """What a step needs to know of a batch, found while it is on the host."""
        return {"padding": padding_of(sample, self.padding_idx)}

    def forward(self, model, sample, reduce=True):
        """The summed loss, or the losses without gradients unless ``reduce``; the
        number of tokens or, with ``sentence_avg``, of sentences; and what is logged."""
        _check_kind(model, TransNormerLanguageModel, "chunked_cross_entropy")
        targets = model.get_targets(sample, None)
        (whole, losses), _ = model(
            **sample["net_input"], targets=targets, padding=sample.get("padding")
        )
        loss = whole if reduce else losses.view(-1)
        ntokens, nsentences = sample["ntokens"], targets.size(0)
        size = nsentences if self.sentence_avg else ntokens
        sums = logged(loss, ntokens, nsentences, size)
        return loss, size, sums | ({"sentence_avg": 1} if self.sentence_avg else {})

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """fairseq's. With ``sentence_avg`` the perplexity is always that of a token.

        fairseq has that of a sentence after a batch of sentences of one token.
        """
        if not total(logging_outputs, "sentence_avg"):
            super().reduce_metrics(logging_outputs)
            return
        loss = total(logging_outputs, "loss") / math.log(2)
        for name, kind in (("loss", "sample_size"), ("nll_loss", "ntokens")):
            count = total(logging_outputs, kind)
            metrics.log_scalar(name, loss / count, count, round=3)
        metrics.log_derived("ppl", lambda x: get_perplexity(x["nll_loss"].avg))


@register_criterion("chunked_masked_lm", dataclass=FairseqDataclass)
class ChunkedMaskedLm(MaskedLmLoss):
    """Cross entropy of the masked tokens; ``masked_lm`` for encoders."""

    def __init__(self, cfg: FairseqDataclass, task):
        # not that of masked_lm, which asks whether there is a TPU
        super(MaskedLmLoss, self).__init__(task)

    def look_at_batch(self, sample: dict) -> dict:
        """What a step needs to know of a batch, found while it is on the host."""
        return {
            "padding": padding_of(sample, self.padding_idx),
            "target_positions": target_positions(sample["target"], self.padding_idx),
        }

    def forward(self, model, sample, reduce=True):
        """The summed loss, or the losses without gradients unless ``reduce``; the
        number of masked tokens; and what is logged."""
        _check_kind(model, TransNormerEncoderModel, "chunked_masked_lm")
        positions = sample.get("target_positions")
        if positions is None:
            positions = target_positions(sample["target"], self.padding_idx)
        (whole, losses), _ = model(
            **sample["net_input"],
            targets=sample["target"],
            target_positions=positions,
            padding=sample.get("padding"),
        )
        loss, size = whole if reduce else losses, positions.numel()
        return loss, size, logged(loss, sample["ntokens"], sample["nsentences"], size)


def _check_kind(model, kind: type, name: str) -> None:
    """Raise ValueError for a model that does not compute this loss.

    An encoder would take the loss of its masked tokens for the loss of all tokens. The
    message names the models that are allowed.
    """
    while hasattr(model, "module"):
        model = model.module
    if not isinstance(model, kind):
        raise ValueError(
            f"criterion._name={name} with {type(model).__name__}; allowed: "
            "chunked_cross_entropy with this package's language models, such as "
            "transnormer_t2; chunked_masked_lm with its encoders, such as "
            "roberta_transnormer_t2; cross_entropy and masked_lm with fairseq's"
        )


# fairseq notes it in checkpoints and resumes from those alone that have the same one;
# these are the same losses
ChunkedCrossEntropy.__name__ = CrossEntropyCriterion.__name__
ChunkedMaskedLm.__name__ = MaskedLmLoss.__name__
