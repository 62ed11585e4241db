"""The criterion's sums over batches; tests/workers has those over workers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.logging import metrics
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from fairseq_transnormer.plugin.criterions.sentence_prediction import (
    SentencePredictionMetricsConfig,
    SentencePredictionMetricsCriterion,
)
from tests.messages import refuses


class Scores(torch.nn.Module):
    """A model whose outputs are given: one row a sample's id."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = outputs

    def forward(self, ids, features_only, classification_head_name):
        return self.outputs[ids], None


def criterion(classes, examples, **options):
    task = SimpleNamespace(
        cfg=SimpleNamespace(num_classes=classes), datasets={"valid": range(examples)}
    )
    return SentencePredictionMetricsCriterion(
        SentencePredictionMetricsConfig(**options), task
    )


def validated(made, outputs, targets, sizes, workers=1):
    """What is logged of batches of these sizes, summed over workers first."""
    model, start, logged = Scores(outputs).eval(), 0, []
    for size in sizes:
        ids = torch.arange(start, start + size)
        sample = {"id": ids, "net_input": {"ids": ids}, "target": targets[ids]}
        logged.append(made(model, sample | {"ntokens": 3 * size})[2])
        start += size
    assert start == len(targets)
    with metrics.aggregate(new_root=True) as found:
        for i in range(0, len(logged), workers):
            group = logged[i : i + workers]
            # as fairseq sums them over workers, key by key
            made.reduce_metrics([{k: sum(g[k] for g in group) for k in group[0]}])
        return found.get_smoothed_values()


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(
    ("sizes", "workers"), [([37], 1), ([8] * 4 + [5], 1), ([8] * 4 + [5], 3)]
)
def test_metrics_do_not_depend_on_batches(classes, sizes, workers):
    outputs, targets = torch.randn(37, classes), torch.randint(classes, (37,))
    found = validated(criterion(classes, 37), outputs, targets, sizes, workers)
    predicted = outputs.argmax(1)
    assert found["accuracy"] == pytest.approx(
        100 * (predicted == targets).double().mean().item()
    )
    assert found["mcc"] == pytest.approx(100 * matthews_corrcoef(targets, predicted))
    name, average = ("f1", "binary") if classes == 2 else ("macro_f1", "macro")
    expected = 100 * f1_score(targets, predicted, average=average)
    assert found[name] == pytest.approx(expected)
    loss = F.cross_entropy(outputs, targets).item() / np.log(2)
    assert found["loss"] == pytest.approx(loss, abs=1e-5)
    assert not [name for name in found if name.startswith("_")]


def test_no_output_that_is_nan_is_right():
    outputs, targets = torch.full((6, 3), torch.nan), torch.arange(6) % 3
    found = validated(criterion(3, 6), outputs, targets, [6])
    assert (found["accuracy"], found["macro_f1"]) == (0, 0)


def test_workers_are_summed():
    # one class is rarer, or f1 may be the same of either
    outputs, targets = torch.randn(40, 2), (torch.rand(40) < 0.2).long()
    made = criterion(2, 40, positive_class=0)
    assert made.logging_outputs_can_be_summed()
    apart = validated(made, outputs, targets, [10] * 4)
    together = validated(made, outputs, targets, [10] * 4, workers=2)
    assert together == pytest.approx(apart)
    of_classes = 100 * f1_score(targets, outputs.argmax(1), average=None)
    assert together["f1"] == pytest.approx(of_classes[0]) != of_classes[1]


def test_scores():
    outputs, targets = torch.randn(23, 1), torch.randint(6, (23,)).float()
    made = criterion(1, 23, regression_target=True)
    found = validated(made, outputs, targets, [7, 7, 7, 2])
    values = outputs[:, 0]
    assert found["pearson"] == pytest.approx(
        100 * stats.pearsonr(values, targets).statistic, rel=1e-5
    )
    assert found["spearman"] == pytest.approx(
        100 * stats.spearmanr(values, targets).statistic, rel=1e-5
    )
    assert found["loss"] == pytest.approx(F.mse_loss(values, targets).item(), abs=1e-5)


def test_scores_that_half_precision_does_not_have():
    """fairseq rounds what a batch has in float32, between both calls."""
    outputs, targets = torch.randn(8, 1), torch.arange(1996, 2004).float()
    made = criterion(1, 8, regression_target=True)
    made.task.source_dictionary = SimpleNamespace(pad=lambda: 1)
    ids = torch.arange(8)
    sample = {"id": ids, "net_input": {"ids": ids, "src_tokens": ids[None]}}
    sample |= {"target": targets, "ntokens": 8}
    sample |= made.look_at_batch(sample)
    halves = utils.apply_to_sample(
        lambda x: x.bfloat16() if x.dtype is torch.float32 else x, sample
    )
    assert not torch.equal(halves["target"].float(), targets)
    halves["net_input"].pop("src_tokens")
    loss, _, logged = made(Scores(outputs).eval(), halves)
    assert torch.equal(logged["scores"][1], targets.double())
    assert loss == F.mse_loss(outputs[:, 0], targets, reduction="sum")


def test_a_second_split_of_another_size():
    """As fairseq-validate adds up what all of its splits log."""
    made, found = criterion(1, 5, regression_target=True), []
    with metrics.aggregate(new_root=True):
        for examples in (5, 9):
            made.task.datasets[str(examples)] = range(examples)
            outputs, targets = torch.randn(examples, 1), torch.randn(examples)
            ids = torch.arange(examples)
            sample = {"id": ids, "net_input": {"ids": ids}, "target": targets}
            logged = made(Scores(outputs).eval(), sample | {"ntokens": 1})[2]
            with metrics.aggregate() as split:
                made.reduce_metrics([logged])
            expected = 100 * stats.pearsonr(outputs[:, 0], targets).statistic
            found.append((split.get_smoothed_values()["pearson"], expected))
    for measured, expected in found:
        assert measured == pytest.approx(expected, rel=1e-5)


def test_a_label_beyond_the_head_is_no_figure():
    with refuses(IndexError, "Target 2"):
        validated(criterion(2, 3), torch.randn(3, 2), torch.tensor([0, 2, 1]), [3])
    with refuses(ValueError, "positive_class=2", "0 to 1"):
        criterion(2, 3, positive_class=2)
    with refuses(ValueError, "num_classes=2", "scores", 1):
        criterion(2, 3, regression_target=True)
