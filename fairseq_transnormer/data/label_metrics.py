"""Metrics of predictions, by scikit-learn and scipy, in percent."""

import numpy as np


def of_classes(confusion: np.ndarray, positive_class: int = 1) -> dict[str, float]:
    """scikit-learn's metrics of one weighted example a cell of the confusion matrix,
    which equal those of the single predictions.

    Args:
        confusion: (classes, classes), how many examples of each class (row) were
            predicted to be of each class (column).
        positive_class: that of ``f1``.

    Returns:
        ``accuracy``, ``mcc`` (Matthews correlation coefficient, also of many classes),
        and ``f1`` of two classes or ``macro_f1`` of more. ``macro_f1`` is over the
        classes that an example has or is predicted to have. 0 where a metric has no
        value, as in scikit-learn.
    """
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    truth, predicted = (each.ravel() for each in np.indices(confusion.shape))
    weights = np.asarray(confusion, dtype=np.float64).ravel()
    f1 = "f1" if len(confusion) == 2 else "macro_f1"
    if not weights.sum():
        return dict.fromkeys(("accuracy", "mcc", f1), 0.0)
    # scikit-learn would count classes whose cells are empty, too
    seen = np.flatnonzero(np.sum(confusion, axis=0) + np.sum(confusion, axis=1))
    labels = [positive_class] if f1 == "f1" else seen
    cells = {"y_true": truth, "y_pred": predicted, "sample_weight": weights}
    of_labels = {"labels": labels, "average": "macro", "zero_division": 0.0}
    return {
        "accuracy": 100 * float(accuracy_score(**cells)),
        "mcc": 100 * float(matthews_corrcoef(**cells)),
        f1: 100 * float(f1_score(**cells, **of_labels)),
    }


def of_scores(predicted: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Metrics of a regression, of (examples,) both.

    Returns:
        ``pearson`` and ``spearman`` (correlation coefficients) and ``correlation``,
        their mean; 0 where one side is constant, NaN where a prediction is no finite
        number.
    """
    from scipy import stats

    values = {"pearson": 0.0, "spearman": 0.0}
    if not np.isfinite(predicted).all():
        values = dict.fromkeys(values, float("nan"))
    elif len(truth) > 1 and np.ptp(predicted) > 0 and np.ptp(truth) > 0:
        values["pearson"] = 100 * float(stats.pearsonr(predicted, truth)[0])
        values["spearman"] = 100 * float(stats.spearmanr(predicted, truth)[0])
    values["correlation"] = (values["pearson"] + values["spearman"]) / 2
    return values
