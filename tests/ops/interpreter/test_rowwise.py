"""The kernels that work by rows, beside their laws: halves, autocast, far positions."""

import pytest
import torch
from torch.autograd.profiler import profile

from fairseq_transnormer import ops
from fairseq_transnormer.ops.gated_silu import gradients_and_product
from fairseq_transnormer.ops.kernels.gated_silu import (
    gate_of_halves,
    gradient_of_halves,
)

from .. import equations, laws
from ..drawing import gradients, relative_error
from ..laws import INTERPRETER, OPS
from .tolerances import TOLERANCES

pytestmark = pytest.mark.usefixtures("poisoned_memory")


@pytest.mark.parametrize(
    ("rows", "width", "dtype"),
    [(1, 8, torch.float32), (3, 136, torch.float16), (70, 136, torch.bfloat16)]
    + [(70, 8, torch.float32)],
)
def test_halves_of_rows(rows, width, dtype):
    """As gate and value of two tensors, with both gradients and the product."""
    tolerance = TOLERANCES[dtype]
    both = 2 * torch.randn(rows, 2 * width).to(dtype)
    gate, value = (x.double() for x in both.chunk(2, 1))
    product = equations.gate(gate, value)
    assert relative_error(gate_of_halves(both), product) < tolerance
    grad = torch.randn(rows, width).to(dtype)
    wanted = torch.cat(gradients(equations.gate, (gate, value), grad.double()), 1)
    gradient, total = gradient_of_halves(both, grad)
    assert gradient.dtype == dtype and relative_error(gradient, wanted) < tolerance
    assert total.dtype == dtype and relative_error(total, wanted.sum(0)) < tolerance
    assert relative_error(grad, product) < tolerance


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t()])
def test_product_beside_the_gradients(view):
    """Also where the gradient has another layout than the gate."""
    gate, value, grad = (view(torch.randn(70, 40)) for _ in range(3))
    wide = gate.double(), value.double()
    wanted = [*gradients(equations.gate, wide, grad.double()), equations.gate(*wide)]
    found = gradients_and_product(gate, value, grad.contiguous(), backend="triton")
    for computed, expected in zip(found, wanted, strict=True):
        assert relative_error(computed, expected) < 1e-5


def test_products_under_autocast():
    """In bfloat16, as the results; gradients in the parameters' float32."""
    op = OPS["gated_linear_unit"]
    tensors, options = INTERPRETER.draw(op, torch.float32)

    def under_autocast(*tensors, **options):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return op.call(*tensors, backend="triton", **options)

    found = laws.results(under_autocast, tensors, **options)
    exact = laws.results(op.equation, laws.wide(tensors), **options)
    for (kind, x), (_, wanted) in zip(found, exact, strict=True):
        gradient = kind.startswith("gradient")
        assert x.dtype == (torch.float32 if gradient else torch.bfloat16)
        assert relative_error(x, wanted) < 5e-2


def test_an_odd_width_is_computed_at_the_next_multiple_of_8():
    tensors = [
        torch.randn(size).requires_grad_()
        for size in [(64, 16), (13, 16), (13,), (13, 16), (13,), (16, 13), (16,)]
    ]
    with profile(with_flops=True) as seen:
        ops.gated_linear_unit(*tensors, backend="triton").sum().backward()
    products = [event.flops for event in seen.function_events if event.flops]
    one = 2 * 64 * 16 * 16  # tokens, width, and the inner width of 13
    # gate and value, output; then of the product, W3, x, and W1 and W2
    assert products == [2 * one, one, one, one, 2 * one, 2 * one]


def encoded(length, width, positions, batch=2):
    """Queries, keys and the gradient of theta by the kernels, and the errors."""
    (query, key, theta), options = INTERPRETER.draw(
        OPS["lrpe"], torch.float32, length=length, width=width, batch=batch
    )
    options |= {"positions": positions, "feature_map": "1+elu"}
    op = OPS["lrpe"]
    found = laws.results(op.call, [query, key, theta], backend="triton", **options)
    wide = laws.wide([query, key, theta])
    exact = laws.results(op.equation, wide, **options)
    return max(laws.error(x, y) for (_, x), (_, y) in zip(found, exact, strict=True))


def test_positions_far_out_and_with_strides():
    """As in decoding: one token a row. Angles are of float32: 65535 * 2^-24."""
    assert encoded(1, 64, torch.tensor([[511], [7], [65535]]), batch=3) < 5e-3
    positions = torch.arange(100)
    assert encoded(5, 32, positions[::20]) < 1e-5
    assert encoded(5, 32, positions.view(10, 10)[:5, :2].t()) < 1e-5


def test_no_tokens_give_none():
    tensors, options = INTERPRETER.draw(OPS["lrpe"], torch.float32, length=0)
    theta = tensors[2].requires_grad_()
    output, _ = OPS["lrpe"].call(*tensors, backend="triton", **options)
    output.sum().backward()
    assert output.shape == (2, 0, 2, 32) and (theta.grad == 0).all()
