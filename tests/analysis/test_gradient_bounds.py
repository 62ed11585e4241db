"""Section 3.1's bounds for random inputs; and that scaled linear attention has none."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_transnormer.analysis.gradient_bounds import (
    WEIGHTS,
    attention,
    bounds,
    probability_gradient,
    score_gradient,
)
from tests.commands import command

ROUNDING = 1 + 1e-9


@st.composite
def inputs(draw, positive=False):
    """Scores (n, n), values (n, d) and dL/dO (n, d), of many magnitudes."""
    length, width = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    magnitude = 10.0 ** draw(st.integers(-6, 3))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    scores = normal(length, length)
    scores = 0.01 + scores.abs() if positive else scores
    # signs alone make the extreme cases, where a bound is reached
    signs = torch.sign if draw(st.booleans()) else (lambda x: x)
    return (
        magnitude * scores,
        signs(normal(length, width)),
        signs(normal(length, width)),
    )


@given(inputs())
def test_softmax_is_bounded(drawn):
    gradient = score_gradient("softmax", *drawn, 0.0).abs().max()
    paper, sharp = bounds("softmax", *drawn, 0.0)
    assert gradient <= sharp * ROUNDING
    if len(drawn[0]) >= 4:
        assert gradient <= paper * ROUNDING
    assert probability_gradient("softmax", drawn[0]).abs().max() <= 0.25 * ROUNDING


@given(inputs(), st.integers(-12, 0))
def test_norm_attention_is_bounded(drawn, exponent):
    eps = 10.0**exponent
    gradient = score_gradient("norm", *drawn, eps).abs().max()
    paper, sharp = bounds("norm", *drawn, eps)
    assert gradient <= sharp * ROUNDING and sharp <= paper


@given(inputs(positive=True))
def test_scaled_linear_is_bounded_by_its_smallest_score_only(drawn):
    scores = drawn[0]
    gradient = score_gradient("linear", *drawn, 0.0).abs().max()
    assert gradient <= bounds("linear", *drawn, 0.0)[1] * ROUNDING
    # equation 11, for each score
    slope = probability_gradient("linear", scores).abs()
    assert (slope <= ROUNDING / (4 * scores[:, None, :])).all()


@given(st.floats(1, 1e12), st.integers(2, 8))
def test_scaled_linear_passes_any_bound(bound, length):
    """Appendix C: equal scores eps, so that p = 1 / n and dp/ds = n^-2 / eps."""
    eps = 1 / (length**2 * bound * 2)
    scores = torch.full((length, length), eps, dtype=torch.float64)
    assert probability_gradient("linear", scores).abs().min() > bound
    value = torch.arange(length, dtype=torch.float64)[:, None]
    gradient = torch.ones_like(value)
    largest = score_gradient("linear", scores, value, gradient, 0.0).abs().max()
    # the first value is (length - 1) / 2 from the mean
    assert largest == pytest.approx((length - 1) / 2 / (length * eps))
    assert largest > bound


def test_papers_bound_fails_for_two_tokens():
    """Equation 48 takes |U_j| for its largest entry: p = 1/2, values 1 and -1."""
    scores = torch.zeros(2, 2, dtype=torch.float64)
    value = torch.tensor([[1.0], [-1.0]]).double()
    inputs = ("softmax", scores, value, torch.ones_like(value), 0.0)
    paper, sharp = bounds(*inputs)
    assert score_gradient(*inputs).abs().max() == sharp == 0.5
    assert paper == pytest.approx(math.sqrt(2) / 4)


def test_gradient_is_that_of_finite_differences():
    scores, value, gradient = (torch.rand(4, 4).double() for _ in range(3))
    step = 1e-6 * torch.eye(4, dtype=torch.float64)[:1]
    for name in WEIGHTS:
        found = score_gradient(name, scores, value, gradient, 1e-3)[0, 0]
        rows = torch.zeros_like(scores)
        rows[:1] = step
        above, below = (
            (gradient * attention(name, scores + sign * rows, value, 1e-3)).sum()
            for sign in (1, -1)
        )
        assert found == pytest.approx(float(above - below) / 2e-6, rel=1e-5)


def test_command_writes_numbers_and_a_figure(tmp_path, capsys):
    assert command("analyse", "gradient_bounds")(["--output", tmp_path]) == 0
    assert "NormAttention" in capsys.readouterr().out
    assert (tmp_path / "gradient_bounds.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "gradient_bounds.json").stat().st_size > 1000
