"""Each form of attention beside its definition, in float64."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import linear_transformers as texts
from benchmarks.options import AttentionLengths
from fairseq_transnormer.ops import reference

FORMS = {
    "attention loop": texts.attention_loop,
    "attention parallel": texts.attention_parallel,
    "state loop": texts.state_loop,
    "state parallel": texts.state_parallel,
    "chunked, 1": partial(texts.chunked, chunk_size=1),
    "chunked, 4": partial(texts.chunked, chunk_size=4),
    "chunked, 64": partial(texts.chunked, chunk_size=64),
}


def assert_is_the_definition(form, length):
    """Output and gradients of the sum over j <= i of (q_i . k_j) v_j."""
    generator = torch.Generator().manual_seed(length)
    shape = (4, 2, length, 3, 5)
    drawn = torch.randn(shape, dtype=torch.float64, generator=generator)
    inputs, grad = drawn[:3].requires_grad_(), drawn[3]
    expected = reference.linear_attention(*inputs, causal=True)[0]
    found = form(*(x.transpose(1, 2) for x in inputs)).transpose(1, 2)
    pairs = [
        (output, torch.autograd.grad(output, inputs, grad)[0])
        for output in (found, expected)
    ]
    torch.testing.assert_close(*pairs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("length", [1, 4, 11])
def test_output_and_gradients(name, length):
    assert_is_the_definition(FORMS[name], length)


@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 70), chunk_size=st.integers(1, 80))
def test_any_length_and_chunk_size(length, chunk_size):
    assert_is_the_definition(partial(texts.chunked, chunk_size=chunk_size), length)


HEADS, WIDTH, LENGTH = 2, 8, 70


def draw():
    return torch.randn(3, 2, LENGTH, HEADS, WIDTH, dtype=torch.float64)


def module(name, **values):
    options = AttentionLengths(heads=HEADS, width=WIDTH)
    return texts.of_module(name, options, **values).attend


def test_linear_attention_is_divided_by_its_sum():
    q, k, v = draw()
    features = (torch.nn.functional.elu(x) + 1 for x in (q, k))
    scores = torch.einsum("bihd,bjhd->bhij", *features).tril()
    weights = scores / scores.sum(-1, keepdim=True)
    expected = torch.einsum("bhij,bjhd->bihd", weights, v)
    torch.testing.assert_close(module("linear")(q, k, v), expected)


@pytest.mark.parametrize(
    ("name", "values"),
    [("norm", {}), ("diag", {}), ("reformer", {"reformer_hashes": 4, **texts.LSH})],
)
def test_the_modules_are_causal(name, values):
    given, attend = draw().float(), module(name, **values)
    changed = given.clone()
    changed[:, :, 60:] = torch.randn_like(changed[:, :, 60:])
    torch.manual_seed(1)
    before = attend(*given)
    torch.manual_seed(1)
    assert before.isfinite().all()
    if name != "reformer":  # whose buckets are sorted over all tokens
        after = attend(*changed)
        torch.testing.assert_close(before[:, :60], after[:, :60], rtol=1e-4, atol=1e-5)
