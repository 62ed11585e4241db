"""The ops that work by rows, beside their laws: memory, dropout, refusals."""

import pytest
import torch
import torch.nn.functional as F

from benchmarks.measure import peak_bytes
from fairseq_transnormer.ops import (
    dropout_add,
    dropout_add_norm,
    gated_linear,
    norm_with_residual,
    rms_norm,
)
from fairseq_transnormer.ops.gated_silu import gradients_and_product
from tests.messages import refuses

from . import equations
from .drawing import CPU_BACKENDS, gradients, relative_error

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)


def equation(gate, value, weight, bias):
    return equations.gate(gate, value) @ weight.t() + bias


def draw(*shape, outputs=5, dtype=torch.float64):
    gate, value = (2 * torch.randn(shape, dtype=dtype) for _ in range(2))
    weight = torch.randn(outputs, shape[-1], dtype=dtype) / shape[-1] ** 0.5
    return gate, value, weight, torch.randn(outputs, dtype=dtype)


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
    product = equations.gate(gate, value)
    expected = gradients(equations.gate, (gate, value), grad.clone())
    found = gradients_and_product(gate, value, grad, backend=backend)
    for computed, wanted in zip(found, [*expected, product], strict=True):
        torch.testing.assert_close(computed, wanted)


def test_memory_of_the_backward_pass():
    """Two gradients and one more of their size at a time, and small ones."""
    tensors = [t.requires_grad_() for t in draw(1000, 50, dtype=torch.float32)]
    output = gated_linear(*tensors, backend="torch")
    grad = torch.randn_like(output)
    peak = peak_bytes(lambda: output.backward(grad), torch.device("cpu"))
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


@pytest.mark.parametrize("eps", [0.0, -1e-8, float("nan")])
@pytest.mark.parametrize(
    "op",
    [rms_norm, norm_with_residual, lambda x, **o: dropout_add_norm(x, x, **o)],
    ids=["rms_norm", "norm_with_residual", "dropout_add_norm"],
)
def test_an_eps_that_makes_zeros_not_a_number_is_refused(op, eps):
    with refuses(ValueError, f"eps={eps}", "above 0"):
        op(torch.zeros(2, 3), eps=eps)


@backends
@pytest.mark.parametrize(
    "x",
    [torch.ones(3, 0), torch.tensor(1.0), torch.ones(3, dtype=torch.int64)],
    ids=["width 0", "no rows", "whole numbers"],
)
def test_what_has_no_norm_is_named(x, backend):
    with refuses(ValueError, "x", x.dtype, tuple(x.shape), "width 1", "float32"):
        rms_norm(x, backend=backend)


def draw_both(dtype=torch.float64):
    return [torch.randn(3, 5, 16, dtype=torch.float64).to(dtype) for _ in "xy"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_is_torchs_to_the_bit(dtype):
    x, y = draw_both(dtype)
    results = []
    for op in (dropout_add, lambda *a, **k: dropout_add_norm(*a, **k)[0]):
        torch.manual_seed(3)
        results.append(op(x, y, dropout_p=0.3, backend="torch"))
    torch.manual_seed(3)
    expected = x + F.dropout(y, 0.3)
    assert all(torch.equal(result, expected) for result in results)


def test_what_does_not_fit_is_named():
    x, y = draw_both()
    for op in (dropout_add, dropout_add_norm):
        with refuses(ValueError, "y", (3, 4, 16), "x", (3, 5, 16), "agree"):
            op(x, y[:, :4])
        with refuses(ValueError, "dropout_p=1.5", "0 <= p <= 1"):
            op(x, y, dropout_p=1.5)
