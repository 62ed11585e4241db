"""Decoding with states equals one pass."""

from typing import NamedTuple

import pytest
import torch

from fairseq_transnormer.ops import join_states, reorder_state, state_bytes
from tests.messages import refuses
from tests.modules.building import BLOCK

from .cases import causal_cases, draw

LENGTH = 3 * BLOCK + 1


@torch.no_grad()
def steps(layer, x, state=None):
    """Outputs of one token after another, and the states behind them."""
    outputs, sizes = [], set()
    for token in x.split(1, dim=1):
        y, state = layer(token, state=state, return_state=True)
        outputs.append(y)
        sizes.add(state_bytes(state))
    return torch.cat(outputs, 1), state, sizes


@causal_cases
@torch.no_grad()
def test_steps(case):
    layer, x = case.layer(causal=True), draw(2, LENGTH)
    y, state, sizes = steps(layer, x)
    torch.testing.assert_close(y, layer(x)[0])
    assert (len(sizes) == 1) == layer.constant_state
    assert state.length.tolist() == [LENGTH] * 2


@causal_cases
@pytest.mark.parametrize("prompt", [1, BLOCK - 1, BLOCK, BLOCK + 1])
@torch.no_grad()
def test_a_prompt_in_one_pass_and_then_steps(case, prompt):
    layer, x = case.layer(causal=True), draw(2, LENGTH)
    first, state = layer(x[:, :prompt], return_state=True)
    rest, _, _ = steps(layer, x[:, prompt:], state)
    torch.testing.assert_close(torch.cat((first, rest), 1), layer(x)[0])


@causal_cases
@torch.no_grad()
def test_a_prompt_of_inference_mode_goes_on_outside_of_it(case):
    layer, x = case.layer(causal=True), draw(2, BLOCK + 3)
    with torch.inference_mode():
        _, state = layer(x[:, :BLOCK], state=None, return_state=True)
    torch.testing.assert_close(
        steps(layer, x[:, BLOCK:], state)[0], layer(x)[0][:, BLOCK:]
    )


@causal_cases
def test_parts_have_the_gradients_of_one_pass(case):
    layer, x = case.layer(causal=True), draw(2, LENGTH).requires_grad_()
    outputs, state = [], None
    for part in x.split((5, 1, BLOCK, 1, LENGTH - BLOCK - 7), dim=1):
        y, state = layer(part, state=state, return_state=True)
        outputs.append(y)
    (gradient,) = torch.autograd.grad(torch.cat(outputs, 1).square().sum(), x)
    (expected,) = torch.autograd.grad(layer(x)[0].square().sum(), x)
    torch.testing.assert_close(gradient, expected)


@causal_cases
@torch.no_grad()
def test_reordered_rows_continue_the_rows_they_came_from(case):
    """As in beam search: rows are copied, dropped and moved."""
    layer, x, order = case.layer(causal=True), draw(3, LENGTH), torch.tensor([2, 0, 2])
    _, state = layer(x[:, : BLOCK + 3], return_state=True)
    state = reorder_state(state, order)
    rest = draw(3, LENGTH - BLOCK - 3)
    y, _, _ = steps(layer, rest, state)
    whole = torch.cat((x[order, : BLOCK + 3], rest), 1)
    torch.testing.assert_close(y, layer(whole)[0][:, BLOCK + 3 :])


@causal_cases
@torch.no_grad()
def test_rows_of_unequal_length(case):
    """Pads on the right of a prompt, then more pads, then steps."""
    layer, x = case.layer(causal=True), draw(4, LENGTH)
    first, second = (1, BLOCK - 1, BLOCK, BLOCK + 5), (3, 1, BLOCK + 1, 2)
    state = None
    starts = [0] * 4
    for counts in (first, second):
        width = max(counts) + 2
        part, pads = torch.zeros(4, width, x.shape[-1]).double(), torch.ones(4, width)
        for b, (start, count) in enumerate(zip(starts, counts, strict=True)):
            part[b, :count], pads[b, :count] = x[b, start : start + count], 0
        y, state = layer(part, pads.bool(), state, True)
        for b, (start, count) in enumerate(zip(starts, counts, strict=True)):
            whole = layer(x[b : b + 1, : start + count])[0][0, start:]
            torch.testing.assert_close(y[b, :count], whole)
        starts = [start + count for start, count in zip(starts, counts, strict=True)]
    assert state.length.tolist() == starts
    rest = draw(4, BLOCK)
    y, _, _ = steps(layer, rest, state)
    for b, start in enumerate(starts):
        whole = torch.cat((x[b, :start], rest[b]))[None]
        torch.testing.assert_close(y[b], layer(whole)[0][0, start:])


@causal_cases
@torch.no_grad()
def test_rows_that_were_read_apart_continue_together(case):
    layer, rest = case.layer(causal=True), draw(3, BLOCK + 2)
    prompts = [draw(1, length) for length in (2, BLOCK, 2 * BLOCK + 3)]
    states = [layer(prompt, return_state=True)[1] for prompt in prompts]
    y, _, _ = steps(layer, rest, join_states(states))
    for b, prompt in enumerate(prompts):
        whole = torch.cat((prompt, rest[b : b + 1]), 1)
        expected = layer(whole)[0][0, prompt.shape[1] :]
        torch.testing.assert_close(y[b], expected)


class AnothersState(NamedTuple):
    length: torch.Tensor


@causal_cases
def test_states_of_another_attention_are_refused(case):
    layer, x = case.layer(causal=True), draw(2, LENGTH)
    state = AnothersState(torch.tensor([LENGTH] * 2))
    with refuses(ValueError, "state", "AnothersState", "allowed"):
        layer(x, state=state, return_state=True)
