"""The gate's kernels against the equation in float64."""

import pytest
import torch

from fairseq_transnormer.ops import gated_linear, gated_silu
from fairseq_transnormer.ops.gated_silu import gradients_and_product
from fairseq_transnormer.ops.triton_ops.gated_silu import (
    BLOCK,
    gate_of_halves,
    gradient_of_halves,
)

from ..drawing import gradients, relative_error
from .tolerances import dtypes

pytestmark = pytest.mark.usefixtures("poisoned_memory")


def equation(gate, value):
    return gate / (1 + torch.exp(-gate)) * value


def triton(gate, value):
    return gated_silu(gate, value, backend="triton")


def draw(shape, dtype):
    return [2 * torch.randn(shape).to(dtype) for _ in range(2)]


def check(gate, value, tolerance):
    weight = torch.randn(gate.shape)
    expected = equation(gate.double(), value.double())
    output = triton(gate, value)
    assert output.dtype == gate.dtype and output.shape == gate.shape
    assert relative_error(output, expected) < tolerance
    wanted = gradients(equation, (gate.double(), value.double()), weight.double())
    computed = gradients(triton, (gate, value), weight.to(gate.dtype))
    for gradient, want in zip(computed, wanted, strict=True):
        assert gradient.dtype == gate.dtype
        assert relative_error(gradient, want) < tolerance


@dtypes
@pytest.mark.parametrize("shape", [(1,), (3, 1, 85), (2, 17, 341)])
def test_equation_and_gradients(shape, dtype, tolerance):
    check(*draw(shape, dtype), tolerance)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(0, 1),
        lambda x: x[..., ::2],
        lambda x: x[:, :3],
        lambda x: x[:1].expand(5, -1, -1),
    ],
    ids=["transposed", "every second", "a slice", "expanded"],
)
def test_layouts(view):
    gate, value = draw((4, 6, 10), torch.float32)
    check(view(gate), view(value), 1e-5)
    check(view(gate).contiguous(), view(value), 1e-5)


def test_dense_layouts_are_kept():
    gate, value = (x.transpose(0, 1) for x in draw((4, 6, 10), torch.float32))
    assert triton(gate, value).stride() == gate.stride()


def test_large_gates_open_and_close():
    gate = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], requires_grad=True)
    value = torch.full((5,), 2.0, requires_grad=True)
    output = triton(gate, value)
    torch.testing.assert_close(output, torch.tensor([0.0, 0.0, 0.0, 200.0, 2e4]))
    output.sum().backward()
    torch.testing.assert_close(gate.grad, torch.tensor([0.0, 0.0, 1.0, 2.0, 2.0]))
    torch.testing.assert_close(value.grad, torch.tensor([0.0, 0.0, 0.0, 100.0, 1e4]))


def test_nothing_gives_nothing():
    assert triton(*draw((0, 3), torch.float32)).shape == (0, 3)


def test_inside_the_glu():
    """gated_linear launches the same kernels and makes the product again."""
    gate, value = draw((2, 17, 85), torch.float32)
    tensors = gate, value, torch.randn(12, 85), torch.randn(12)
    weight = torch.randn(2, 17, 12)

    def expected(gate, value, matrix, bias):
        return equation(gate, value) @ matrix.t() + bias

    wanted = gradients(expected, [t.double() for t in tensors], weight)
    computed = gradients(lambda *t: gated_linear(*t, backend="triton"), tensors, weight)
    for gradient, want in zip(computed, wanted, strict=True):
        assert relative_error(gradient, want) < 1e-5


@dtypes
@pytest.mark.parametrize("count", [1, BLOCK, BLOCK + 7])
def test_full_programs_and_the_last_one(count, dtype, tolerance):
    check(*draw((count,), dtype), tolerance)


@dtypes
@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("width", [8, 136])
def test_halves_of_rows(width, rows, dtype, tolerance):
    """As gate and value of two tensors, with both gradients and the product."""
    both = 2 * torch.randn(rows, 2 * width).to(dtype)
    gate, value = (x.double() for x in both.chunk(2, 1))
    product = equation(gate, value)
    assert relative_error(gate_of_halves(both), product) < tolerance
    grad = torch.randn(rows, width).to(dtype)
    wanted = torch.cat(gradients(equation, (gate, value), grad.double()), 1)
    gradient, total = gradient_of_halves(both, grad)
    assert gradient.dtype == dtype and relative_error(gradient, wanted) < tolerance
    assert total.dtype == dtype and relative_error(total, wanted.sum(0)) < tolerance
    assert relative_error(grad, product) < tolerance


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t()])
def test_product_beside_the_gradients(view):
    """Also where the gradient has another layout than the gate."""
    gate, value, grad = (view(torch.randn(70, 40)) for _ in range(3))
    wanted = gradients(equation, (gate.double(), value.double()), grad.double())
    found = gradients_and_product(gate, value, grad.contiguous(), backend="triton")
    for computed, expected in zip(found, [*wanted, equation(gate, value)], strict=True):
        assert relative_error(computed, expected) < 1e-5
