"""ops.gated_linear_unit against its equation in float64."""

import pytest
import torch

from fairseq_transnormer.ops import gated_linear_unit

from .drawing import CPU_BACKENDS, gradients, relative_error


def equation(x, w1, b1, w2, b2, w3, b3):
    gate = x @ w1.t() + b1
    return (gate / (1 + torch.exp(-gate)) * (x @ w2.t() + b2)) @ w3.t() + b3


def draw(*shape, inside, outputs=6, dtype=torch.float64):
    """x (..., C), and the parameters of an inner width that may be odd."""
    width = shape[-1]
    sizes = [(inside, width), (inside,)] * 2 + [(outputs, inside), (outputs,)]
    return [
        (torch.randn(size, dtype=torch.float64) / size[-1] ** 0.5).to(dtype)
        for size in (shape, *sizes)
    ]


def check(tensors, backend, tolerance):
    def op(*tensors):
        return gated_linear_unit(*tensors, backend=backend)

    wide = [t.double() for t in tensors]
    output = op(*tensors)
    assert output.dtype == tensors[0].dtype
    assert relative_error(output, equation(*wide)) < tolerance
    weight = torch.randn(output.shape)
    for gradient, wanted, tensor in zip(
        gradients(op, tensors, weight),
        gradients(equation, wide, weight),
        tensors,
        strict=True,
    ):
        assert gradient.dtype == tensor.dtype and gradient.shape == tensor.shape
        assert relative_error(gradient, wanted) < tolerance


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_equation_and_gradients(shape, backend):
    check(draw(*shape, inside=7), backend, 1e-13)
