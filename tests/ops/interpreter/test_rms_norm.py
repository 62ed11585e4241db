"""SimpleRMSNorm's kernels against the equation in float64."""

import pytest
import torch

from fairseq_transnormer.ops import rms_norm
from tests.messages import refuses

from .. import equations
from ..drawing import gradients, relative_error
from .tolerances import dtypes

pytestmark = pytest.mark.usefixtures("poisoned_memory")


def check(x, tolerance, eps=1e-8):
    weight = torch.randn(x.shape)
    output = rms_norm(x, eps=eps, backend="triton")
    assert output.dtype == x.dtype and output.shape == x.shape
    assert relative_error(output, equations.rms_norm(x, eps=eps)) < tolerance
    (wanted,) = gradients(
        lambda x: equations.rms_norm(x, eps=eps), [x.double()], weight.double()
    )
    (gradient,) = gradients(
        lambda x: rms_norm(x, eps=eps, backend="triton"), [x], weight.to(x.dtype)
    )
    assert gradient.dtype == x.dtype
    assert relative_error(gradient, wanted) < tolerance


@dtypes
@pytest.mark.parametrize("shape", [(7,), (1, 1, 64), (3, 17, 96), (2, 3, 4, 512)])
def test_equation_and_gradient(shape, dtype, tolerance):
    check(torch.randn(shape).to(dtype), tolerance)


@pytest.mark.parametrize("width", [1, 2, 1000, 4097, 8192])
def test_widths(width):
    # for width 1 the gradient is 0 but for eps
    check(torch.randn(3, width), 1e-5, eps=0.3)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(0, 1),
        lambda x: x.transpose(0, 2),
        lambda x: x[..., 3:],
        lambda x: x[:1].expand(5, -1, -1),
        lambda x: x[..., None].transpose(2, 3),
        lambda x: x.unflatten(2, (2, 8)).transpose(1, 2),
    ],
    ids=["T x B x C", "columns", "slice", "expanded", "4 dimensions", "heads first"],
)
def test_layouts(view):
    check(view(torch.randn(6, 4, 16)), 1e-5)


def test_the_layout_is_kept():
    x = torch.randn(6, 4, 16).transpose(0, 1)
    assert rms_norm(x, backend="triton").stride() == x.stride()


@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_magnitudes_beyond_the_range_of_float16(scale):
    x = (scale * torch.randn(6, 512)).half()
    output = rms_norm(x, backend="triton")
    assert relative_error(output, equations.rms_norm(x, eps=1e-8)) < 1e-3


def test_a_row_of_zeros_stays_zero():
    x = torch.zeros(2, 8, dtype=torch.float16, requires_grad=True)
    output = rms_norm(x, backend="triton")
    (output * 1e-3).sum().backward()
    assert (output == 0).all() and x.grad.isfinite().all()


def test_nothing_gives_nothing():
    assert rms_norm(torch.empty(0, 3, 8), backend="triton").shape == (0, 3, 8)


def test_rows_beyond_a_program_are_refused():
    with refuses(ValueError, "backend='triton'", "width 8193", "up to 8192"):
        rms_norm(torch.ones(1, 8193), backend="triton")
