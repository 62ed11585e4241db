"""Each form of attention and each sampler beside its definition, in float64."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.linear_transformers import five_forms, sampling_layer
from benchmarks.linear_transformers.attention_lengths import FUSED, MATRIX, contestants
from benchmarks.linear_transformers.linear_attention_forms import (
    SOFTMAX,
    entered,
    relative_error,
)
from fairseq_transnormer.ops import reference

FORMS = {
    "attention loop": five_forms.attention_loop,
    "attention parallel": five_forms.attention_parallel,
    "state loop": five_forms.state_loop,
    "state parallel": five_forms.state_parallel,
    "chunked, 1": partial(five_forms.chunked, chunk_size=1),
    "chunked, 4": partial(five_forms.chunked, chunk_size=4),
    "chunked, 64": partial(five_forms.chunked, chunk_size=64),
}


def random_inputs(length, width=5):
    """(3, B, N, H, D) in float64, and a gradient of the output."""
    generator = torch.Generator().manual_seed(length)
    return torch.randn(
        4, 2, length, 3, width, dtype=torch.float64, generator=generator
    ).split((3, 1))


def definition(q, k, v):
    """The sum over j <= i of (q_i . k_j) v_j, as the project's reference has it."""
    return reference.linear_attention(q, k, v, causal=True)


def with_gradients(attend, inputs, grad):
    inputs = inputs.clone().requires_grad_()
    output = attend(*inputs)
    return output, torch.autograd.grad(output, inputs, grad)[0]


def length_first(form):
    return lambda *inputs: form(*(x.transpose(1, 2) for x in inputs)).transpose(1, 2)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("length", [1, 4, 11])
def test_output_and_gradients(name, length):
    inputs, (grad,) = random_inputs(length)
    expected = with_gradients(definition, inputs, grad)
    found = with_gradients(length_first(FORMS[name]), inputs, grad)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 70), chunk_size=st.integers(1, 80))
def test_any_length_and_chunk_size(length, chunk_size):
    inputs, (grad,) = random_inputs(length)
    chunked = partial(five_forms.chunked, chunk_size=chunk_size)
    expected = with_gradients(definition, inputs, grad)
    found = with_gradients(length_first(chunked), inputs, grad)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_steps_give_the_last_output():
    q, k, v = random_inputs(9)[0].transpose(2, 3)
    state = torch.zeros(2, 3, 5, 5, dtype=torch.float64)
    steps = [
        five_forms.state_step(q[:, :, i], k[:, :, i], v[:, :, i], state)
        for i in range(9)
    ]
    expected = definition(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
    torch.testing.assert_close(torch.stack(steps, 2), expected)


class Options:
    device, dtype = torch.device("cpu"), "float32"


@pytest.mark.parametrize("name", entered(16))
def test_the_check_before_timing(name):
    """A right form passes; one that sees one token less does not."""
    contestant = entered(16)[name].contestant
    assert relative_error(contestant, name == SOFTMAX, 8, Options) < 1e-5

    def late(q, k, v):
        length = 1 if contestant.length_first else 2
        return contestant.attend(q, k.roll(1, length), v.roll(1, length))

    wrong = contestant._replace(attend=late)
    assert relative_error(wrong, name == SOFTMAX, 8, Options) > 0.1


HEADS, WIDTH, LENGTH = 2, 8, 70


def output(name, q, k, v):
    contestant = contestants(HEADS, WIDTH, torch.device("cpu"))[name].contestant
    if contestant.length_first:
        return contestant.attend(q, k, v)
    swapped = (x.transpose(1, 2) for x in (q, k, v))
    return contestant.attend(*swapped).transpose(1, 2)


def draw():
    return torch.randn(3, 2, LENGTH, HEADS, WIDTH, dtype=torch.float64)


def weighted(weights, v):
    return torch.einsum("bhij,bjhd->bihd", weights, v)


def test_softmax_attention():
    q, k, v = draw()
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / WIDTH**0.5
    past = torch.ones(LENGTH, LENGTH).tril() > 0
    expected = weighted(scores.masked_fill(~past, -torch.inf).softmax(-1), v)
    for name in (MATRIX, FUSED):
        torch.testing.assert_close(output(name, q, k, v), expected)


def test_linear_attention_is_divided_by_its_sum():
    q, k, v = draw()
    features = (torch.nn.functional.elu(x) + 1 for x in (q, k))
    scores = torch.einsum("bihd,bjhd->bhij", *features).tril()
    expected = weighted(scores / scores.sum(-1, keepdim=True), v)
    torch.testing.assert_close(output("1+elu", q, k, v), expected)


def test_all_are_causal():
    given = draw()
    changed = given.clone()
    changed[:, :, 50:] = torch.randn_like(changed[:, :, 50:])
    for name in contestants(HEADS, WIDTH, torch.device("cpu")):
        torch.manual_seed(0)  # of the hashes
        before = output(name, *given)
        torch.manual_seed(0)
        after = output(name, *changed)
        torch.testing.assert_close(before[:, :50], after[:, :50], rtol=1e-12, atol=0)
        assert not torch.equal(before[:, 50:], after[:, 50:]), name


@pytest.mark.parametrize("context", [2, 9])
def test_samplers(context):
    inputs = torch.randn(3, 1, context, 2, 8, dtype=torch.float64)
    linear = reference.linear_attention(*inputs, causal=True)[:, -1]
    q, k, v = inputs[:, 0]
    scores = torch.einsum("hd,nhd->hn", q[-1], k) * 8**-0.5
    softmax = torch.einsum("hn,nhd->hd", scores.softmax(-1), v)[None]
    with torch.no_grad():
        for name, sampler in sampling_layer.samplers(inputs).items():
            expected = linear if name.startswith("linear") else softmax
            torch.testing.assert_close(sampler.step(), expected, msg=name)
