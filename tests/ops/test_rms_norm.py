"""ops.rms_norm against x / sqrt(mean(x^2) + eps) in float64."""

import pytest
import torch

from fairseq_transnormer.ops import add_and_norm, norm_beside, rms_norm
from tests.messages import refuses

from . import equations
from .drawing import CPU_BACKENDS, gradients, relative_error

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)


@pytest.mark.parametrize("eps", [0.0, -1e-8, float("nan")])
@pytest.mark.parametrize(
    "op",
    [rms_norm, norm_beside, lambda x, **o: add_and_norm(x, x, **o)],
    ids=["rms_norm", "norm_beside", "add_and_norm"],
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


@backends
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 1), (2, 3, 5), (2, 3, 4, 512)])
@pytest.mark.parametrize("eps", [1e-8, 0.1])
def test_equation(shape, eps, backend):
    x = torch.randn(shape, dtype=torch.float64)
    output = rms_norm(x, eps=eps, backend=backend)
    torch.testing.assert_close(output, equations.rms_norm(x, eps=eps))


@backends
def test_gradcheck(backend):
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    for eps in (1e-8, 0.5):
        assert torch.autograd.gradcheck(
            lambda x, eps=eps: rms_norm(x, eps=eps, backend=backend), x
        )


@backends
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-6), (torch.bfloat16, 3e-3), (torch.float16, 4e-4)],
)
# the sum of squares leaves float16's range upwards and downwards
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_dtypes_and_magnitudes(scale, dtype, tolerance, backend):
    x = (scale * torch.randn(6, 512)).to(dtype)
    output = rms_norm(x, backend=backend)
    assert output.dtype == dtype and output.isfinite().all()
    assert relative_error(output, equations.rms_norm(x, eps=1e-8)) < tolerance


@backends
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 2e-6), (torch.bfloat16, 6e-3), (torch.float16, 8e-4)],
)
def test_gradients_of_dtypes(dtype, tolerance, backend):
    x, weight = (torch.randn(6, 64).to(dtype) for _ in range(2))
    (gradient,) = gradients(lambda x: rms_norm(x, backend=backend), [x], weight)
    (wanted,) = gradients(
        lambda x: equations.rms_norm(x, eps=1e-8), [x.double()], weight
    )
    assert gradient.dtype == dtype
    assert relative_error(gradient, wanted) < tolerance


@backends
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16]
)
def test_a_row_of_zeros_stays_zero(dtype, backend):
    x = torch.zeros(2, 8, dtype=dtype, requires_grad=True)
    output = rms_norm(x, backend=backend)
    (output * 1e-3).sum().backward()
    assert (output == 0).all() and x.grad.isfinite().all()


@backends
def test_strides_do_not_matter(backend):
    x = torch.randn(8, 3, 4, dtype=torch.float64).transpose(0, 2)
    for view in (x, x[..., ::2], x[:1].expand(5, -1, -1)):
        torch.testing.assert_close(
            rms_norm(view, backend=backend), equations.rms_norm(view, eps=1e-8)
        )
