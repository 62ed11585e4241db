"""What a row gives depends neither on where its pads stand nor on what is in them."""

import math

import torch

from tests.modules.building import BLOCK, LAYOUTS, SMALL, left, scattered

from .cases import all_cases, draw, in_turn

# below, at and above a block, and nothing but one token
LENGTHS = (1, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 5)
WIDTH = 4 * BLOCK + 1


def batched(rows, layout, at_pads):
    """One batch of the rows, its mask, and the columns in which each stands."""
    x = torch.full((len(rows), WIDTH, SMALL["embed_dim"]), at_pads, dtype=torch.float64)
    pads = torch.ones(len(rows), WIDTH, dtype=torch.bool)
    columns = [layout(len(row), WIDTH) for row in rows]
    for b, (row, where) in enumerate(zip(rows, columns, strict=True)):
        x[b, where], pads[b, where] = row, False
    return x, pads, columns


@in_turn("layout", LAYOUTS)
@torch.no_grad()
def test_rows_alone_equal_rows_in_a_batch(case, causal, layout):
    """NaN stays in what it is multiplied with, numbers and infinities may go under."""
    stack = case.stack(causal)
    rows = [draw(length) for length in LENGTHS]
    alone = [stack(row[None])[0][0] for row in rows]
    for at_pads in (math.nan, 1e30, -math.inf):
        x, pads, columns = batched(rows, layout, at_pads)
        for one, row, where in zip(alone, stack(x, pads)[0], columns, strict=True):
            assert (row[where] - one).norm() < 1e-10 * one.norm()


@in_turn("layout", (left, scattered))
def test_gradients_alone_equal_gradients_in_a_batch(case, causal, layout):
    stack = case.stack(causal)
    rows = [draw(length) for length in LENGTHS]

    def gradients(outputs):
        stack.zero_grad()
        sum(y.square().sum() + y.sum() for y in outputs).backward()
        return [p.grad.clone() for p in stack.parameters() if p.grad is not None]

    x, pads, columns = batched(rows, layout, at_pads=3.0)
    y = stack(x, pads)[0]
    together = gradients([y[b, where] for b, where in enumerate(columns)])
    alone = gradients([stack(row[None])[0][0] for row in rows])
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@all_cases
def test_a_row_of_pads_is_no_trouble(case, causal):
    stack, x = case.stack(causal), draw(2, 10).requires_grad_()
    pads = torch.tensor([[False], [True]]).expand(2, 10)
    y = stack(x, pads)[0]
    y[0].sum().backward()
    assert y.isfinite().all() and x.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in stack.parameters())
    torch.testing.assert_close(y[:1], stack(x[:1])[0])
