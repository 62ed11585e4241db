"""A batch without rows, as a filter or a sharded batch may leave it."""

import pytest
import torch

from .cases import CAUSAL, all_cases, causal_cases, draw


@all_cases
@pytest.mark.parametrize("length", [1, 21])
@pytest.mark.parametrize("padded", [False, True])
def test_no_rows_give_no_rows(case, causal, length, padded):
    layer, x = case.layer(causal).train(), draw(0, length).requires_grad_()
    pads = torch.zeros(0, length, dtype=torch.bool) if padded else None
    output = layer(x, pads)
    assert output.shape == x.shape
    output.sum().backward()
    assert x.grad.shape == x.shape
    for parameter in layer.parameters():
        assert parameter.grad is None or not parameter.grad.any()


@causal_cases
@torch.no_grad()
def test_states_of_no_rows_go_on(case):
    layer, state = case.layer(causal=True), None
    for length in (9, 1, 1, 3):
        x = draw(0, length)
        output, state = layer(x, None, state, return_state=True)
        assert output.shape == x.shape and len(state.length) == 0


def test_there_are_causal_cases():
    assert CAUSAL
