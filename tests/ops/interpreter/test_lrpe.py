"""LRPE's kernels against the matrix form R(position * theta) (I - 2 v v^T)."""

import pytest
import torch

from fairseq_transnormer import ops
from fairseq_transnormer.ops import FEATURE_MAPS

from .. import equations
from ..drawing import gradients, relative_error
from .tolerances import dtypes

pytestmark = pytest.mark.usefixtures("poisoned_memory")


def draw(length, width, dtype, *, batch=2, heads=2):
    query, key = (torch.randn(batch, length, heads, width).to(dtype) for _ in "qk")
    theta = 10000.0 ** -(torch.arange(0, width, 2) / width)
    direction = torch.randn(width)
    return query, key, theta, direction / direction.norm()


def matrix_form(query, key, theta, reflection, positions, feature_map):
    """Both encoded in float64, stacked; differentiable in theta."""
    v = reflection.double()
    reflect = torch.eye(len(v), dtype=torch.float64) - 2 * v[:, None] * v
    angles = (positions[..., None] * theta.double()).expand(*query.shape[:2], -1)
    cos, sin = angles.cos()[:, :, None], angles.sin()[:, :, None]
    encoded = []
    for x in (query, key):
        x = equations.FEATURE_MAPS[feature_map](x.double()) @ reflect
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((cos * even - sin * odd, sin * even + cos * odd), -1)
        encoded.append(turned.flatten(-2))
    return torch.stack(encoded)


def triton(query, key, theta, reflection, positions, feature_map):
    encoded = ops.lrpe(
        query,
        key,
        theta,
        reflection,
        positions,
        feature_map=feature_map,
        backend="triton",
    )
    for output, x in zip(encoded, (query, key), strict=True):
        assert output.dtype == x.dtype and output.shape == x.shape
    return torch.stack(encoded)


def check(query, key, theta, v, positions, tolerance, feature_map="1+elu"):
    arguments = v, positions, feature_map
    expected = matrix_form(query, key, theta, *arguments)
    output = triton(query, key, theta, *arguments)
    assert relative_error(output, expected) < tolerance
    weight = torch.randn(expected.shape).to(query.dtype)
    tensors = query, key, theta
    computed = gradients(lambda *x: triton(*x, *arguments), tensors, weight)
    wanted = gradients(
        lambda *x: matrix_form(*x, *arguments), [x.double() for x in tensors], weight
    )
    for gradient, want, tensor in zip(computed, wanted, tensors, strict=True):
        assert gradient.dtype == tensor.dtype and gradient.shape == tensor.shape
        assert relative_error(gradient, want) < tolerance


def test_the_matrix_form_is_the_specification_s():
    query, key, theta, v = draw(3, 8, torch.float64)
    output = matrix_form(query, key, theta, v, torch.arange(3), "identity")[0]
    for position in range(3):
        matrix = equations.lrpe_matrix(position, theta, v)
        torch.testing.assert_close(output[:, position], query[:, position] @ matrix.T)


@dtypes
@pytest.mark.parametrize("feature_map", FEATURE_MAPS)
def test_feature_maps(feature_map, dtype, tolerance):
    inputs = draw(17, 64, dtype)
    check(*inputs, torch.arange(17), tolerance, feature_map)


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("length", [1, 64, 130])
def test_widths_and_lengths(length, width):
    inputs = draw(length, width, torch.float32, heads=3)
    check(*inputs, torch.arange(length) + 3, 1e-5)


def test_each_row_has_positions_of_its_own():
    """As in decoding: one token a row, far out."""
    positions = torch.tensor([[511], [7], [65535]])
    inputs = draw(1, 64, torch.float32, batch=3)
    check(*inputs, positions, 5e-3)  # float32 angles: 65535 * 2^-24
    check(*inputs, positions % 64, 1e-5)


def test_strides_of_positions():
    inputs = draw(5, 32, torch.float32)
    positions = torch.arange(100)
    check(*inputs, positions[::20], 1e-5)
    check(*inputs, positions.view(10, 10)[:5, :2].t(), 1e-5)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.permute(1, 0, 2, 3).contiguous().permute(1, 0, 2, 3),
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: x.mT.contiguous().mT,
        lambda x: x[:, :, :1].expand(-1, -1, 4, -1),
        lambda x: torch.cat((x, x), -1)[..., :32],
    ],
    ids=["T x B x C", "heads first", "width outside", "shared head", "half of a row"],
)
def test_layouts(view):
    query, key, theta, v = draw(9, 32, torch.float32)
    check(
        view(query),
        key[:, :, :1].expand_as(view(query)),
        theta,
        v,
        torch.arange(9),
        1e-5,
    )


def test_the_layout_is_kept():
    query, key, theta, v = draw(9, 32, torch.float32)
    query = query.permute(1, 0, 2, 3).contiguous().permute(1, 0, 2, 3)
    encoded, _ = ops.lrpe(query, key, theta, v, torch.arange(9), backend="triton")
    assert encoded.stride() == query.stride()


def test_many_programs_loop_over_the_heads(monkeypatch):
    from fairseq_transnormer.ops.triton_ops import lrpe

    monkeypatch.setattr(lrpe, "FEW_PROGRAMS", 2)
    check(*draw(70, 32, torch.float32, heads=3), torch.arange(70), 1e-5)


def test_one_gradient_alone():
    """The other output is not used, and theta is frozen."""
    query, key, theta, v = draw(5, 32, torch.float32)
    arguments = theta, v, torch.arange(5)
    (computed,) = gradients(
        lambda key: ops.lrpe(query, key, *arguments, backend="triton")[1],
        [key],
        torch.ones_like(key),
    )
    (wanted,) = gradients(
        lambda key: matrix_form(query, key, *arguments, "identity")[1],
        [key.double()],
        torch.ones_like(key),
    )
    assert relative_error(computed, wanted) < 1e-5


def test_nothing_gives_nothing():
    query, key, theta, v = draw(0, 32, torch.float32)
    theta.requires_grad_()
    output = triton(query, key, theta, v, torch.arange(0), "elu")
    output.sum().backward()
    assert output.shape == (2, 2, 0, 2, 32) and (theta.grad == 0).all()
