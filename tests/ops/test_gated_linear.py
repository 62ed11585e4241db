"""ops.gated_linear against (a / (1 + exp(-a)) * b) W^T + c in float64."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.cost_model.traced import trace
from fairseq_transnormer.ops import gated_linear
from fairseq_transnormer.ops.gated_silu import gradients_and_product
from tests.messages import refuses

from .drawing import CPU_BACKENDS, gradients, relative_error

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)


def equation(gate, value, weight, bias):
    return (gate / (1 + torch.exp(-gate)) * value) @ weight.t() + bias


def draw(*shape, outputs=5, dtype=torch.float64):
    gate, value = (2 * torch.randn(shape, dtype=dtype) for _ in range(2))
    weight = torch.randn(outputs, shape[-1], dtype=dtype) / shape[-1] ** 0.5
    return gate, value, weight, torch.randn(outputs, dtype=dtype)


@backends
@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-13), (torch.float32, 1e-6), (torch.bfloat16, 2e-2)],
)
def test_equation_and_gradients(dtype, tolerance, shape, backend):
    tensors = draw(*shape, dtype=dtype)
    wide = [t.double() for t in tensors]

    def op(*tensors):
        return gated_linear(*tensors, backend=backend)

    assert op(*tensors).dtype == dtype
    assert relative_error(op(*tensors), equation(*wide)) < tolerance
    weight = torch.randn(*shape[:-1], 5)
    for gradient, wanted in zip(
        gradients(op, tensors, weight), gradients(equation, wide, weight), strict=True
    ):
        assert gradient.dtype == dtype
        assert relative_error(gradient, wanted) < tolerance


@backends
def test_gradcheck_and_no_bias(backend):
    tensors = [t.requires_grad_() for t in draw(3, 4)]

    def op(*tensors):
        return gated_linear(*tensors, backend=backend)

    assert torch.autograd.gradcheck(op, tensors)
    assert torch.autograd.gradcheck(op, tensors[:3])


@pytest.mark.parametrize("wanted", range(4))
def test_gradient_of_one_input_alone(wanted):
    tensors = draw(3, 4)
    tensors[wanted].requires_grad_()
    gated_linear(*tensors, backend="torch").sum().backward()
    expected = gradients(equation, tensors, torch.ones(3, 5))[wanted]
    torch.testing.assert_close(tensors[wanted].grad, expected)


def test_the_product_is_not_kept():
    tensors = [t.requires_grad_() for t in draw(6, 50)]
    kept = []

    def keep(t):
        kept.append(t.data_ptr())
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        gated_linear(*tensors, backend="torch")
    assert sorted(kept) == sorted(t.data_ptr() for t in tensors[:3])


@backends
def test_product_beside_the_gradients(backend):
    gate, value, grad = (torch.randn(6, 50, dtype=torch.float64) for _ in range(3))
    product = gate / (1 + torch.exp(-gate)) * value
    expected = gradients(
        lambda a, b: a / (1 + torch.exp(-a)) * b, (gate, value), grad.clone()
    )
    found = gradients_and_product(gate, value, grad, backend=backend)
    for computed, wanted in zip(found, [*expected, product], strict=True):
        torch.testing.assert_close(computed, wanted)


def test_memory_of_the_backward_pass():
    """Two gradients and one more of their size at a time, and small ones."""
    with FakeTensorMode():
        tensors = [t.requires_grad_() for t in draw(1000, 50, dtype=torch.float32)]
        output = gated_linear(*tensors, backend="torch")
        grad = torch.empty_like(output)
        peak = trace(lambda: output.backward(grad)).peak_bytes
    wide = tensors[0].nbytes
    assert 3 * wide <= peak < 3.1 * wide


def test_autocast_casts_the_product_with_the_weight():
    tensors = draw(6, 50, dtype=torch.float32)
    gate, value = (t.bfloat16() for t in tensors[:2])

    def under_autocast(*tensors):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return gated_linear(*tensors, backend="torch")

    tensors = (gate, value, *tensors[2:])
    assert under_autocast(*tensors).dtype == torch.bfloat16
    wide = [t.double() for t in tensors]
    weight = torch.randn(6, 5)
    for tensor, gradient, wanted in zip(
        tensors,
        gradients(under_autocast, tensors, weight),
        gradients(equation, wide, weight),
        strict=True,
    ):
        assert gradient.dtype == tensor.dtype
        assert relative_error(gradient, wanted) < 2e-2


def test_gates_that_do_not_fit_are_refused():
    gate, value, weight, bias = draw(6, 50)
    with refuses(ValueError, "gate", (6, 50), "value", (3, 50), "agree"):
        gated_linear(gate, value[:3], weight, bias)
