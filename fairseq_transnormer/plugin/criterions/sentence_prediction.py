"""``sentence_prediction_metrics``: a sentence's class or score, with GLUE's metrics.

fairseq's own criterion for this task rounds its metrics to one decimal. It concatenates
lists of predictions, which fails with several workers.
"""

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from ...data import label_metrics
from ...modules.options import described
from .chunked_cross_entropy import padding_of
from .sums import SummedCriterion, classification_loss, logged, predicted, total


@dataclass
class SentencePredictionMetricsConfig(FairseqDataclass):
    """The head to train, and the meaning of its outputs."""

    # the task reads both of these from here
    classification_head_name: str = described(
        "sentence_classification_head", "name of the classification head"
    )
    regression_target: bool = described(
        False, "the head's one output is a score, trained by squared error"
    )
    positive_class: int = described(
        1, "of two classes, the number of the one that f1 is about"
    )


@register_criterion(
    "sentence_prediction_metrics", dataclass=SentencePredictionMetricsConfig
)
class SentencePredictionMetricsCriterion(SummedCriterion):
    """Cross entropy over classes, or squared error of a score.

    Validation also logs the metrics of ``data.label_metrics``. Those of scores need all
    examples together. So each batch logs a vector with one place per example of the
    largest split, and fills in its own examples. The sum has all of them.
    """

    def __init__(self, cfg: SentencePredictionMetricsConfig, task):
        super().__init__(task)
        self.head = cfg.classification_head_name
        self.is_regression = cfg.regression_target
        self.positive_class = cfg.positive_class
        classes = task.cfg.num_classes
        if (classes == 1) != self.is_regression:
            raise ValueError(f"num_classes={classes}; allowed: 1 with scores, else not")
        if not (self.is_regression or 0 <= self.positive_class < classes):
            raise ValueError(
                f"positive_class={self.positive_class}; allowed: 0 to {classes - 1}"
            )

    def look_at_batch(self, sample: dict) -> dict:
        """Prepare a batch for a step, while it is on the host.

        With --fp16 and --bf16 fairseq rounds every float32 of a batch, the true scores
        too. It does not round float64.
        """
        known = {"padding": padding_of(sample, self.task.source_dictionary.pad())}
        if self.is_regression:
            known["scores"] = sample["target"].double()
        return known

    def forward(self, model, sample, reduce=True):
        """The summed loss, the number of sentences, and what is logged."""
        # other packages' encoders do not ask for it
        takes = "padding" in sample and getattr(model, "takes_padding", False)
        known = {"padding": sample["padding"]} if takes else {}
        logits, _ = model(
            **sample["net_input"],
            features_only=True,
            classification_head_name=self.head,
            **known,
        )
        targets = sample.get("scores", sample["target"]).view(-1)
        if self.is_regression:
            count = targets.numel()
            logits, targets = logits.view(-1).float(), targets.float()
            loss = F.mse_loss(logits, targets, reduction="sum")
            sums = logged(loss.double(), sample["ntokens"], count, count)
            if not model.training:
                sums["scores"] = self._scores(sample["id"], logits, targets)
            return loss, count, sums
        classes = logits.shape[-1]
        loss, count, sums = classification_loss(logits, targets, sample["ntokens"])
        if not model.training:
            found = predicted(logits)
            # none counts as a wrong one
            found = found.where(found >= 0, (targets + 1) % classes)
            cells = targets * classes + found
            confusion = torch.bincount(cells, minlength=classes**2)
            sums["confusion"] = confusion.double().view(classes, -1)
            sums["positive"] = self.positive_class * count
        return loss, count, sums

    def _scores(self, ids: Tensor, predicted: Tensor, truth: Tensor) -> Tensor:
        """(3, examples): predicted, truth and a one, each at its example's place."""
        places = max(len(dataset) for dataset in self.task.datasets.values())
        scores = predicted.new_zeros(3, places, dtype=torch.float64)
        scores[0, ids] = predicted.detach().double()
        scores[1, ids] = truth.double()
        scores[2, ids] = 1
        return scores

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """Log the metrics over all workers."""
        super().reduce_metrics(logging_outputs)
        count = total(logging_outputs, "sample_size")
        if any("confusion" in log for log in logging_outputs):
            confusion = total(logging_outputs, "confusion")
            metrics.log_scalar("_confusion", confusion)
            positive = total(logging_outputs, "positive") / count
            metrics.log_scalar("_positive", positive, count)
            for name in ("mcc", "f1" if len(confusion) == 2 else "macro_f1"):
                metrics.log_derived(name, functools.partial(_of_classes, name=name))
        if any("scores" in log for log in logging_outputs):
            scores = total(logging_outputs, "scores")
            # fairseq-validate adds up what all of its splits log; each may have a size
            key = f"_scores_{scores.shape[1]}"
            metrics.log_scalar(key, scores)
            for name in ("pearson", "spearman", "correlation"):
                of_scores = functools.partial(_of_scores, key=key, name=name)
                metrics.log_derived(name, of_scores)


def _of_classes(meters, name: str) -> float:
    positive = round(float(meters["_positive"].avg or 0))
    confusion = meters["_confusion"].sum.cpu().numpy()
    return label_metrics.of_classes(confusion, positive)[name]


def _of_scores(meters, key: str, name: str) -> float:
    # an AverageMeter keeps the plain sum of what was logged with weight 1
    predicted, truth, seen = meters[key].sum.cpu().numpy()
    seen = seen > 0
    return label_metrics.of_scores(predicted[seen], truth[seen])[name]
