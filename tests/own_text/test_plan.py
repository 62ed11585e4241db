"""Vocabulary, model and training follow from the text, within bounds."""

import math
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_transnormer.own_text.errors import OwnTextError
from fairseq_transnormer.own_text.plan import Plan, differences, plan_for
from tests.messages import refuses


def counts_of(characters, alphabet=80):
    return {
        "characters": characters,
        "different_characters": alphabet,
        "frequent_characters": min(alphabet, 3 * alphabet // 4 + 10),
    }


@given(
    characters=st.integers(2_000, 10**11),
    alphabet=st.integers(2, 20_000),
    has_gpu=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_any_text_has_a_plan(characters, alphabet, has_gpu):
    plan = plan_for(counts_of(characters, alphabet), has_gpu)
    # sentencepiece needs an entry for each byte and for each character that is covered
    covered = alphabet if plan.character_coverage == 1 else 3 * alphabet // 4 + 10
    assert plan.vocab_size >= 261 + min(alphabet, covered)
    assert plan.vocab_size % 8 == plan.width % 64 == plan.layers % 2 == 0
    assert 200 <= plan.updates <= (50_000 if has_gpu else 2_000)
    assert 1 <= plan.batch_size <= (64 if has_gpu else 8)
    assert plan.warmup_updates < plan.updates > plan.validations >= 1
    assert has_gpu or plan.layer_parameters <= 3_145_728
    # no layer parameter without a quarter of a token, but in the smallest model
    smallest = plan.layer_parameters == 12 * 2 * 64**2
    assert smallest or plan.layer_parameters <= 4 * characters / 1.5


def test_more_text_makes_more_of_everything():
    plans = [plan_for(counts_of(10**n), True) for n in range(4, 10)]
    for name in ("vocab_size", "layer_parameters", "updates", "tokens_per_sample"):
        values = [getattr(plan, name) for plan in plans]
        assert values == sorted(values), name
    assert plans[0].width == 64 and plans[-1].width == 768


def test_vocabulary_grows_with_the_square_root():
    one, four = (plan_for(counts_of(n * 10**6), False) for n in (1, 4))
    assert one.vocab_size == -(-(261 + 3_000) // 8) * 8
    assert four.vocab_size - 261 == pytest.approx(2 * (one.vocab_size - 261), rel=0.01)


def test_large_scripts_keep_frequent_characters():
    plan = plan_for(counts_of(10**6, 6_000), False)
    assert plan.character_coverage == 0.9995
    assert plan.vocab_size > 2 * counts_of(10**6, 6_000)["frequent_characters"]
    assert plan_for(counts_of(10**6, 900), False).character_coverage == 1.0


def test_values_can_be_chosen():
    chosen = {"width": 128, "updates": 7, "tokens_per_sample": 64, "lr": None}
    plan = plan_for(counts_of(10**6), False, chosen)
    assert (plan.width, plan.updates, plan.tokens_per_sample) == (128, 7, 64)
    rule = plan_for(counts_of(10**6), False)
    assert (plan.lr, plan.layers) == (rule.lr, rule.layers)
    assert plan.warmup_updates == 1
    # an update of shorter sequences has more of them, and one with fewer more updates
    half = plan_for(counts_of(4 * 10**5), False, {"batch_size": 4})
    full = plan_for(counts_of(4 * 10**5), False)
    assert half.updates == pytest.approx(
        min(2000, full.updates * full.batch_size / 4), abs=1
    )


@pytest.mark.parametrize(
    ("chosen", "parts"),
    [
        ({"width": 100}, ["width=100", "multiples of 64"]),
        ({"layers": 3}, ["layers=3", "2, 4"]),
        ({"tokens_per_sample": 2}, ["tokens_per_sample=2", "from 3"]),
        ({"vocab_size": 200}, ["vocab_size=200", "262"]),
    ],
)
def test_values_that_cannot_be(chosen, parts):
    with refuses(OwnTextError, *parts, alone=True):
        plan_for(counts_of(10**6), False, chosen)


def test_too_little_text():
    with refuses(OwnTextError, "1,999 characters", "2,000 or more", alone=True):
        plan_for(counts_of(1_999), False)


def test_differences_leave_updates_aside():
    plan = plan_for(counts_of(10**6), False)
    there = asdict(plan) | {"updates": 1}
    assert differences(there, plan) == []
    (found,) = differences(there | {"width": 512}, plan)
    assert all(word in found for word in ("width", "512", str(plan.width)))
    assert isinstance(Plan(**asdict(plan)), Plan) and math.isfinite(plan.lr)
