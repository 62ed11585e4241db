"""Metrics of sums against scikit-learn and scipy on the single predictions."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from fairseq_transnormer.data.label_metrics import of_classes, of_scores


def confusion_of(truth, predicted, classes):
    confusion = np.zeros((classes, classes))
    np.add.at(confusion, (truth, predicted), 1)
    return confusion


@pytest.mark.parametrize("positive", [0, 1])
def test_two_classes(positive):
    draw = np.random.default_rng(0)
    truth, predicted = draw.integers(0, 2, (2, 101))
    found = of_classes(confusion_of(truth, predicted, 2), positive)
    assert found == pytest.approx(
        {
            "accuracy": 100 * metrics.accuracy_score(truth, predicted),
            "mcc": 100 * metrics.matthews_corrcoef(truth, predicted),
            "f1": 100 * metrics.f1_score(truth, predicted, pos_label=positive),
        }
    )


@pytest.mark.parametrize("absent", [0, 2], ids=["all are there", "two are not"])
def test_many_classes(absent):
    draw = np.random.default_rng(1)
    truth = draw.integers(0, 5, 203)
    predicted = np.where(draw.random(203) < 0.6, truth, draw.integers(0, 5, 203))
    found = of_classes(confusion_of(truth, predicted, 5 + absent))
    assert found == pytest.approx(
        {
            "accuracy": 100 * metrics.accuracy_score(truth, predicted),
            "mcc": 100 * metrics.matthews_corrcoef(truth, predicted),
            "macro_f1": 100 * metrics.f1_score(truth, predicted, average="macro"),
        }
    )


def test_a_class_that_is_predicted_alone_counts():
    """Its F1 is 0, as scikit-learn's; of a class that nobody names there is none."""
    truth, predicted = np.array([0, 0, 1, 1, 1]), np.array([0, 2, 1, 1, 2])
    found = of_classes(confusion_of(truth, predicted, 4))["macro_f1"]
    assert found == pytest.approx(
        100 * metrics.f1_score(truth, predicted, average="macro", zero_division=0)
    )
    assert found == pytest.approx(100 * (2 / 3 + 4 / 5 + 0) / 3)


def test_a_model_that_always_says_the_same_has_no_correlation():
    found = of_classes(np.array([[7.0, 0], [3, 0]]))
    assert found == {"accuracy": 70.0, "mcc": 0.0, "f1": 0.0}
    assert of_classes(np.zeros((2, 2)))["accuracy"] == 0
    assert of_scores(np.ones(4), np.arange(4.0))["correlation"] == 0


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_model_whose_outputs_are_no_numbers_has_no_score(wrong):
    found = of_scores(np.array([1, wrong, 3]), np.arange(3.0))
    assert set(found) == {"pearson", "spearman", "correlation"}
    assert np.isnan(list(found.values())).all()


def test_scores():
    draw = np.random.default_rng(2)
    truth = draw.integers(0, 6, 50).astype(float)  # ties, as STS-B has them
    predicted = truth + draw.normal(size=50)
    pearson = 100 * stats.pearsonr(truth, predicted).statistic
    spearman = 100 * stats.spearmanr(truth, predicted).statistic
    expected = {"pearson": pearson, "spearman": spearman}
    expected["correlation"] = (pearson + spearman) / 2
    assert of_scores(predicted, truth) == pytest.approx(expected)
