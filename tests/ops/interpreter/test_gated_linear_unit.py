"""The GLU's products with packed, padded weights, around the gate's kernels."""

import pytest
import torch

from benchmarks.cost_model.on_a_gpu import as_on_a_gpu
from benchmarks.cost_model.traced import trace
from fairseq_transnormer.ops import gated_linear_unit

from ..drawing import gradients, relative_error
from ..test_gated_linear_unit import check, draw, equation
from .tolerances import dtypes

pytestmark = pytest.mark.usefixtures("poisoned_memory")


@dtypes
@pytest.mark.parametrize(
    ("shape", "inside"), [((5,), 9), ((3, 8), 8), ((2, 7, 5), 13), ((2, 70, 16), 45)]
)
def test_equation_and_gradients(shape, inside, dtype, tolerance):
    check(draw(*shape, inside=inside, dtype=dtype), "triton", tolerance)


@pytest.mark.parametrize("wanted", range(7))
def test_gradient_of_one_input_alone(wanted):
    tensors = draw(3, 4, inside=5, dtype=torch.float32)
    tensors[wanted].requires_grad_()
    gated_linear_unit(*tensors, backend="triton").sum().backward()
    wide = [t.detach().double() for t in tensors]
    expected = gradients(equation, wide, torch.ones(3, 6))[wanted]
    assert relative_error(tensors[wanted].grad, expected) < 1e-5
    assert all(t.grad is None for i, t in enumerate(tensors) if i != wanted)


def test_under_autocast():
    """Products in bfloat16; output in it, gradients in the parameters' float32."""
    tensors = draw(3, 20, inside=13, dtype=torch.float32)

    def op(*tensors):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return gated_linear_unit(*tensors, backend="triton")

    assert op(*tensors).dtype == torch.bfloat16
    weight = torch.randn(3, 6)
    for gradient, wanted in zip(
        gradients(op, tensors, weight),
        gradients(equation, [t.double() for t in tensors], weight),
        strict=True,
    ):
        assert gradient.dtype == torch.float32
        assert relative_error(gradient, wanted) < 3e-2


def test_an_odd_width_is_computed_at_the_next_multiple_of_8():
    with as_on_a_gpu():
        tensors = [
            torch.empty(size).requires_grad_()
            for size in [(64, 16), (13, 16), (13,), (13, 16), (13,), (16, 13), (16,)]
        ]

        def step():
            gated_linear_unit(*tensors, backend="triton").sum().backward()

        products = [k["flops"] for k in trace(step).kernels if k["flops"]]
    one = 2 * 64 * 16 * 16  # tokens, width, and the inner width of 13
    # gate and value, output; then of the product, W3, x, and W1 and W2
    assert products == [2 * one, one, one, one, 2 * one, 2 * one]


def test_it_is_differentiated_once():
    tensors = [t.requires_grad_() for t in draw(3, 4, inside=5, dtype=torch.float32)]
    output = gated_linear_unit(*tensors, backend="triton")
    (grad,) = torch.autograd.grad(output.square().sum(), tensors[0], create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative of GatedLinearUnit"):
        grad.sum().backward()


def test_no_rows():
    """As the last rank of a training has, where the data do not go round."""
    x = torch.randn(0, 3, 8, requires_grad=True)
    parameters = [torch.randn(shape) for shape in ((5, 8), 5, (5, 8), 5, (8, 5), 8)]
    output = gated_linear_unit(x, *parameters, backend="triton")
    output.sum().backward()
    assert output.shape == x.grad.shape == (0, 3, 8)
