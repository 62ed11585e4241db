"""``sentence_prediction_metrics``: a sentence's class or score, with GLUE's metrics.

fairseq's own criterion for this task rounds its metrics to one decimal and adds up
lists of predictions, which fails with several workers. Here every logged quantity is a
number or a tensor that can be summed over batches and workers, and the metrics are
derived from the sums: they do not depend on how the examples were divided.
"""

import functools
import math
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from . import metrics as glue_metrics
from .chunked_cross_entropy import padding_of


@dataclass
class SentencePredictionMetricsConfig(FairseqDataclass):
    """The head to train, and what its outputs are."""

    # the task reads both of these from here
    classification_head_name: str = field(
        default="sentence_classification_head",
        metadata={"help": "name of the classification head"},
    )
    regression_target: bool = field(
        default=False,
        metadata={"help": "the head's one output is a score, trained by squared error"},
    )
    positive_class: int = field(
        default=1,
        metadata={"help": "of two classes, the number of the one that f1 is about"},
    )


@register_criterion(
    "sentence_prediction_metrics", dataclass=SentencePredictionMetricsConfig
)
class SentencePredictionMetricsCriterion(FairseqCriterion):
    """Cross entropy over classes, or squared error of a score.

    Logged in training: ``loss`` and ``accuracy``; in validation the metrics of
    ``criterions.metrics`` besides. Pearson's and Spearman's coefficients need all
    scores at once: each batch logs a vector with a place for every example of the
    largest split, in which it fills in its own, so that sums are the whole.
    """

    def __init__(self, cfg: SentencePredictionMetricsConfig, task):
        super().__init__(task)
        self.head = cfg.classification_head_name
        self.is_regression = cfg.regression_target
        self.positive_class = cfg.positive_class
        classes = task.cfg.num_classes
        if self.is_regression and classes != 1:
            raise ValueError(f"num_classes={classes}; allowed with scores: 1")
        if not self.is_regression:
            if classes < 2:
                raise ValueError(f"num_classes={classes}; allowed: at least 2")
            if not 0 <= self.positive_class < classes:
                raise ValueError(
                    f"positive_class={self.positive_class}; allowed: 0 to {classes - 1}"
                )

    def look_at_batch(self, sample: dict) -> dict:
        """What a step needs to know of a batch, found while it is on the host.

        With --fp16 and --bf16 fairseq rounds every float32 of a batch, the true scores
        too; float64 it leaves as it is.
        """
        known = {"padding": padding_of(sample, self.task.source_dictionary.pad())}
        if self.is_regression:
            known["scores"] = sample["target"].double()
        return known

    def forward(self, model, sample, reduce=True):
        """Loss of a batch.

        Args:
            model: with ``classification_heads``.
            sample: of the task ``sentence_prediction``.

        Returns:
            the summed loss, the number of sentences, and what is logged.
        """
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
        count = targets.numel()
        if self.is_regression:
            logits, targets = logits.view(-1).float(), targets.float()
            loss = F.mse_loss(logits, targets, reduction="sum")
        else:
            self._check_targets(targets, logits.shape[-1])
            log_probabilities = F.log_softmax(logits, dim=-1, dtype=torch.float32)
            loss = F.nll_loss(log_probabilities, targets, reduction="sum")
        logged = {
            "loss": loss.detach().double(),
            "ntokens": sample["ntokens"],
            "nsentences": count,
            "sample_size": count,
        }
        if self.is_regression:
            if not model.training:
                logged["scores"] = self._scores(sample["id"], logits, targets)
        else:
            predicted = logits.argmax(dim=-1)
            logged["correct"] = (predicted == targets).sum()
            if not model.training:
                cells = targets * logits.shape[-1] + predicted
                confusion = torch.bincount(cells, minlength=logits.shape[-1] ** 2)
                logged["confusion"] = confusion.double().view(logits.shape[-1], -1)
                logged["positive"] = self.positive_class * count
        return loss, count, logged

    @staticmethod
    def _check_targets(targets: Tensor, classes: int) -> None:
        # on a GPU the look would wait for it in each step; there nll_loss asserts
        if targets.device.type == "cpu" and not 0 <= targets.min() <= targets.max() < (
            classes
        ):
            wrong = targets[(targets < 0) | (targets >= classes)][0].item()
            raise ValueError(
                f"a label has number {wrong}; allowed: 0 to {classes - 1} "
                f"(num_classes={classes})"
            )

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
        """Log the metrics of what the workers logged."""

        def total(key: str):
            return sum(log[key] for log in logging_outputs if key in log)

        count = total("sample_size")
        is_classification = any("correct" in log for log in logging_outputs)
        # in bits, as fairseq has cross entropies
        unit = math.log(2) if is_classification else 1
        metrics.log_scalar("loss", total("loss") / count / unit, count, round=6)
        if is_classification:
            metrics.log_scalar("_accuracy", 100 * total("correct") / count, count)
            metrics.log_derived(
                "accuracy", lambda meters: _average(meters["_accuracy"])
            )
        if any("confusion" in log for log in logging_outputs):
            confusion = total("confusion")
            metrics.log_scalar("_confusion", confusion)
            metrics.log_scalar("_positive", total("positive") / count, count)
            f1 = "f1" if len(confusion) == 2 else "macro_f1"
            for name in ("mcc", f1):
                metrics.log_derived(name, functools.partial(_of_classes, name=name))
        if any("scores" in log for log in logging_outputs):
            scores = total("scores")
            # fairseq-validate adds up what all of its splits log; each may have a size
            key = f"_scores_{scores.shape[1]}"
            metrics.log_scalar(key, scores)
            for name in ("pearson", "spearman", "correlation"):
                of_scores = functools.partial(_of_scores, key=key, name=name)
                metrics.log_derived(name, of_scores)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Yes, all of them."""
        return True


def _average(meter) -> float:
    return float(meter.avg or 0)


def _sum(meter) -> np.ndarray:
    """An AverageMeter keeps the plain sum of what was logged with weight 1."""
    return meter.sum.cpu().numpy()


def _of_classes(meters, name: str) -> float:
    positive = round(_average(meters["_positive"]))
    return glue_metrics.of_classes(_sum(meters["_confusion"]), positive)[name]


def _of_scores(meters, key: str, name: str) -> float:
    predicted, truth, seen = _sum(meters[key])
    seen = seen > 0
    return glue_metrics.of_scores(predicted[seen], truth[seen])[name]
