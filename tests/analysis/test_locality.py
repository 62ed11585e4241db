"""Locally accumulated scores against section 3.2 word by word."""

import pytest
import torch

from fairseq_transnormer.analysis.attention_scores import (
    locally_accumulated_scores,
    mean_curve,
)


def random_weights(*shape):
    return torch.rand(*shape, dtype=torch.float64).softmax(-1)


def neighbourhood(i, size, length):
    """``size`` indices around i: left, right, left, ... while there are any."""
    found, left, right, go_left = [i] if size else [], i - 1, i + 1, True
    while len(found) < size:
        if (go_left and left >= 0) or right == length:
            found.append(left)
            left -= 1
        else:
            found.append(right)
            right += 1
        go_left = not go_left
    return found


@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_scores_are_sums_over_the_neighbourhood(length):
    weights = random_weights(2, 3, length, length)
    ratios = torch.linspace(0, 1, 13)
    scores = locally_accumulated_scores(weights, ratios)
    assert scores.shape == (2, 3, length, 13)
    for i in range(length):
        for k, ratio in enumerate(ratios.tolist()):
            size = round(ratio * length)
            expected = weights[..., i, neighbourhood(i, size, length)].sum(-1)
            torch.testing.assert_close(scores[..., i, k], expected)


def test_mean_leaves_rows_without_weight_out():
    weights = torch.eye(4, dtype=torch.float64)
    weights[2] = 0
    curve, count = mean_curve(weights, torch.tensor([0.0, 0.25, 1.0]))
    assert (curve.tolist(), count) == ([0.0, 1.0, 1.0], 3)
    assert mean_curve(torch.zeros(3, 3), torch.ones(2))[1] == 0
