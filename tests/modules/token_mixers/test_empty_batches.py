"""A batch without rows, as a filter or a sharded batch may leave it."""

import torch

from .cases import all_cases, causal_cases, draw


@all_cases
def test_no_rows_give_no_rows(case, causal):
    layer = case.layer(causal).train()
    for length, padded in ((1, False), (1, True), (21, False), (21, True)):
        x = draw(0, length).requires_grad_()
        pads = torch.zeros(0, length, dtype=torch.bool) if padded else None
        output = layer(x, pads)[0]
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
