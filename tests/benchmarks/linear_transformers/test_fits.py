"""Fits give back the laws that made the numbers."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas import Series

from benchmarks.linear_transformers.fits import chunk_cost, growth, overtakes

LENGTHS = (64, 128, 256, 512, 1024)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_growth_of_a_power_law(exponent):
    line = {n: 3.0 * n**exponent for n in (512, 1024, 2048, 4096)}
    assert growth(Series(line)) == pytest.approx(exponent)
    # what lies before the last three doublings does not count, nor what is not there
    assert growth(Series({**line, 256: 1e9})) == pytest.approx(exponent)
    assert growth(Series({**line, 8192: math.nan})) == pytest.approx(exponent)
    assert growth(Series({512: 1.0, 1024: 2.0, 2048: 4.0})) is None


@settings(max_examples=30)
@given(st.floats(65, 1023))
def test_power_laws_cross_where_they_do(crossing):
    linear = Series({n: n / crossing for n in LENGTHS})
    quadratic = Series({n: (n / crossing) ** 2 for n in LENGTHS})
    assert overtakes(linear, quadratic) == pytest.approx(crossing)
    assert overtakes(quadratic, linear) == math.inf


def test_the_last_crossing_counts():
    other = Series(1.0, LENGTHS)
    line = Series((0.5, 2.0, 2.0, 0.5, 0.5), LENGTHS)
    assert overtakes(line, other) == pytest.approx(256 * 2**0.5)


def test_no_crossing():
    line, other = Series(1.0, LENGTHS), Series(2.0, LENGTHS)
    assert overtakes(line, other) == 0
    assert overtakes(line, line) == math.inf
    assert overtakes(line, Series(dtype=float)) is None
    # 4096 has no peer
    assert overtakes(Series({64: 1.0, 128: 1.0, 4096: 9.0}), other) == 0
    assert overtakes(Series({64: 1.0, 4096: 9.0}), other) is None


def points(state, scores, sums):
    return [
        (c, d, state * d**2 + scores * c * d + sums * d**2 / c)
        for c in (8, 32, 128, 512)
        for d in (32, 64)
    ]


positive = st.floats(1e-3, 1e3)


@given(positive, positive, positive)
def test_chunk_cost(state, scores, sums):
    made = points(state, scores, sums)
    law = chunk_cost(made, with_sums=True)
    assert law[:3] == pytest.approx((state, scores, sums), rel=1e-4, abs=1e-6)
    assert law.deviation < 1e-6
    for c, d, seconds in made:
        assert law.seconds(c, d) == pytest.approx(seconds, rel=1e-5)
    # the derivative in c is 0 there
    assert law.best(64) == pytest.approx(math.sqrt(sums * 64 / scores), rel=1e-3)


def test_chunk_cost_without_sums():
    law = chunk_cost(points(2.0, 3.0, 0.0), with_sums=False)
    assert law[:3] == pytest.approx((2.0, 3.0, 0.0))
    assert law.best(64) is None


def test_no_coefficient_is_negative():
    law = chunk_cost(points(-1.0, 3.0, 40.0), with_sums=True)
    assert min(law[:3]) >= 0
