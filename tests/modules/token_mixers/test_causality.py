"""A causal mixer does not see the future; a bidirectional one does."""

import pytest
import torch

from tests.modules.building import BLOCK, assert_untouched

from .cases import CASES, causal_cases, draw, label

LENGTH = 3 * BLOCK - 2
# the first and last of the sequence, and both sides of a block's border
CHANGED = (0, 1, BLOCK - 1, BLOCK, BLOCK + 3, LENGTH - 1)


@causal_cases
@torch.no_grad()
def test_outputs_in_front_of_a_change_are_the_same(case):
    layer = case.layer(causal=True)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        layer, x = layer.to(dtype), draw(2, LENGTH).to(dtype)
        y = layer(x)[0]
        for j in CHANGED:
            changed = x.clone()
            changed[:, j] = 10 * torch.randn_like(x[:, j])
            after = layer(changed)[0]
            assert_untouched(after[:, :j], y[:, :j], case.name)
            assert not torch.equal(after[:, j], y[:, j])


@causal_cases
def test_gradients_of_the_future_are_exactly_zero(case):
    layer, x = case.layer(causal=True), draw(1, LENGTH).requires_grad_()
    y = layer(x)[0]
    dead = 0
    for i in CHANGED:
        (gradient,) = torch.autograd.grad(y[0, i].square().sum(), x, retain_graph=True)
        assert (gradient[0, i + 1 :] == 0).all()
        dead += bool((gradient[0, i] == 0).all())
    # under ReLU a token that sees itself alone may give nothing
    assert dead <= 1


@pytest.mark.parametrize("case", CASES, ids=label)
@torch.no_grad()
def test_a_bidirectional_mixer_sees_the_future(case):
    layer, x = case.layer(causal=False), draw(1, LENGTH)
    changed = x.clone()
    changed[:, BLOCK - 1] += 1
    change = (layer(changed)[0] - layer(x)[0]).abs().amax(-1)[0]
    # not all of it: ReLU leaves scores out
    assert (change[: BLOCK - 1] > 0).any()
