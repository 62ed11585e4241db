"""ops.gated_silu against a / (1 + exp(-a)) * b in float64."""

import pytest
import torch

from fairseq_transnormer.ops import gated_silu

from .drawing import CPU_BACKENDS, relative_error

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)


@backends
@pytest.mark.parametrize("shape", [(5,), (2, 3, 85)])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float64, 1e-14),
        (torch.float32, 1e-6),
        (torch.bfloat16, 5e-3),
        (torch.float16, 6e-4),
    ],
)
def test_equation(dtype, tolerance, shape, backend):
    gate, value = (3 * torch.randn(shape).to(dtype) for _ in range(2))
    output = gated_silu(gate, value, backend=backend)
    a = gate.double()
    assert output.dtype == dtype
    assert relative_error(output, a / (1 + torch.exp(-a)) * value) < tolerance


@backends
def test_gradcheck(backend):
    tensors = [torch.randn(7, dtype=torch.float64, requires_grad=True) for _ in "ab"]
    assert torch.autograd.gradcheck(
        lambda gate, value: gated_silu(gate, value, backend=backend), tensors
    )


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_large_gates_open_and_close(dtype, backend):
    gate = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], dtype=dtype)
    output = gated_silu(gate, torch.full_like(gate, 2.0), backend=backend)
    expected = torch.tensor([0.0, 0.0, 0.0, 200.0, 2e4], dtype=dtype)
    torch.testing.assert_close(output, expected)
