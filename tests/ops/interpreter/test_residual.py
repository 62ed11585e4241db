"""Residual connections in one kernel: values, gradients, and what is dropped."""

import pytest
import torch

from fairseq_transnormer.ops import dropout_add, dropout_add_norm, norm_with_residual
from fairseq_transnormer.ops.kernels.launch import shapes_only

from .. import equations
from ..drawing import gradients, relative_error
from .tolerances import TOLERANCES, assert_near, dtypes

pytestmark = pytest.mark.usefixtures("poisoned_memory")

TRITON = {"backend": "triton"}


def draw(shape, dtype=torch.float32):
    """Away from zero, so that what is dropped can be told."""
    return [
        (torch.randn(shape).sign() * (1 + torch.rand(shape))).to(dtype) for _ in "xy"
    ]


def mask_of(total, x, y):
    """1 where y was kept, by the sum alone."""
    return ((total.double() - x.double()) / y.double()).abs() > 0.5


def both(x, y, **options):
    """Sum and norm, and the same as equations with the sum's own mask."""
    return torch.stack(dropout_add_norm(x, y, eps=0.1, **options, **TRITON))


def equation(mask, dropout_p):
    def function(x, y):
        total = x + y * mask / (1 - dropout_p)
        return torch.stack((total, equations.rms_norm(total, eps=0.1)))

    return function


def check(x, y, tolerance, dropout_p=0.0):
    def op(x, y):
        torch.manual_seed(5)
        return both(x, y, dropout_p=dropout_p)

    output = op(x, y)
    mask = mask_of(output[0], x, y)
    expected = equation(mask, dropout_p)
    wide = x.double(), y.double()
    assert output.dtype == torch.result_type(x, y)
    assert relative_error(output, expected(*wide)) < tolerance
    weight = torch.randn(output.shape)
    for gradient, wanted, tensor in zip(
        gradients(op, (x, y), weight),
        gradients(expected, wide, weight),
        (x, y),
        strict=True,
    ):
        assert gradient.dtype == tensor.dtype and gradient.shape == tensor.shape
        assert relative_error(gradient, wanted) < tolerance
    if dropout_p:
        # as a test of this test
        assert 0 < mask.double().mean() < 1


@pytest.mark.parametrize(
    ("shape", "dtype", "dropout_p"),
    [
        ((5, 9, 16), torch.float32, 0.3),
        ((3, 17, 96), torch.bfloat16, 0.3),
        ((7, 40), torch.float16, 0.3),
        ((2, 3, 4, 512), torch.float32, 0.3),
        ((1, 1, 16), torch.bfloat16, 0.0),
        ((3, 1), torch.float32, 0.0),
        ((3, 1000), torch.float32, 0.5),
        ((3, 4097), torch.float32, 0.5),
    ],
)
def test_sum_norm_and_gradients(shape, dtype, dropout_p):
    check(*draw(shape, dtype), TOLERANCES[dtype], dropout_p)


def test_dtypes_may_differ_under_autocast():
    x, y = draw((3, 5, 32))
    check(x, y.bfloat16(), 2e-2, 0.5)
    check(x, y.bfloat16(), 2e-2)


@dtypes
def test_norm_and_the_gradient_from_elsewhere(dtype, tolerance):
    x, weight = torch.randn(3, 17, 96).to(dtype), torch.randn(2, 3, 17, 96)

    def op(x):
        same, z = norm_with_residual(x, eps=0.1, **TRITON)
        assert same.dtype == z.dtype == dtype and torch.equal(same, x)
        return torch.stack((same, z))

    def expected(x):
        return torch.stack((x, equations.rms_norm(x, eps=0.1)))

    assert relative_error(op(x), expected(x.double())) < tolerance
    (gradient,) = gradients(op, [x], weight)
    (wanted,) = gradients(expected, [x.double()], weight)
    assert gradient.dtype == dtype and relative_error(gradient, wanted) < tolerance


def masks(dropout_p, shape=(20, 50, 64), seeds=(1,)):
    x, y = torch.zeros(shape), torch.ones(shape)
    found = []
    for seed in seeds:
        torch.manual_seed(seed)
        found.append(dropout_add(x, y, dropout_p=dropout_p, **TRITON))
    return found


@pytest.mark.parametrize("dropout_p", [0.1, 0.5, 0.93])
def test_how_much_is_dropped_and_how_the_rest_grows(dropout_p):
    (total,) = masks(dropout_p)
    kept = total != 0
    assert_near(kept, 1 - dropout_p)
    torch.testing.assert_close(
        total[kept], torch.full_like(total[kept], 1 / (1 - dropout_p))
    )
    # every column and every row has its share
    for share in (kept.double().mean((0, 1)), kept.double().mean((0, 2))):
        assert (share - (1 - dropout_p)).abs().max() < 0.15


@pytest.mark.parametrize(("dim", "distance"), [(2, 1), (2, 4), (1, 1)])
def test_neighbours_are_dropped_independently(dim, distance):
    (total,) = masks(0.5)
    kept = total != 0
    length = kept.shape[dim] - distance
    one, other = kept.narrow(dim, 0, length), kept.narrow(dim, distance, length)
    assert_near(one == other, 0.5)


def test_seeds_decide_what_is_dropped():
    one, again, other = (total != 0 for total in masks(0.5, seeds=(1, 1, 2)))
    assert torch.equal(one, again)
    assert_near(one == other, 0.5)
    # the next call of one seed has another mask
    torch.manual_seed(1)
    first, second = (
        dropout_add(0 * one.float(), one.float() + 1, dropout_p=0.5, **TRITON) != 0
        for _ in range(2)
    )
    assert torch.equal(first, one)
    assert_near(first == second, 0.5)


def test_nothing_and_everything_is_dropped():
    x, y = draw((3, 5, 16))
    assert torch.equal(dropout_add(x, y, dropout_p=0.0, **TRITON), x + y)
    for op in (dropout_add, lambda *a, **k: dropout_add_norm(*a, **k)[0]):
        x, y = (t.detach().requires_grad_() for t in (x, y))
        total = op(x, y, dropout_p=1.0, **TRITON)
        total.sum().backward()
        assert torch.equal(total, x)
        assert (x.grad == 1).all() and (y.grad == 0).all()


def test_a_captured_graph_takes_torchs_ops(monkeypatch):
    """A seed would be the same in each replay."""
    x, y = draw((5, 6, 32))
    drawn = []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(
        torch.nn.functional, "dropout", lambda y, p: drawn.append(p) or y
    )
    dropout_add(x, y, dropout_p=0.3, **TRITON)
    dropout_add_norm(x, y, dropout_p=0.2, **TRITON)
    assert drawn == [0.3, 0.2]


def test_one_launch_each():
    x, names = torch.randn(3, 5, 16).requires_grad_(), []
    with shapes_only(lambda kernel, arguments: names.append(kernel.__name__)):
        same, z = norm_with_residual(x, **TRITON)
        same, z = dropout_add_norm(same, z, dropout_p=0.1, **TRITON)
        result = dropout_add(same, z, dropout_p=0.1, **TRITON)
        forward = len(names)
        result.backward(torch.randn_like(x))
    assert names[:forward] == ["residual_kernel"] * 3
    assert names[forward:] == ["residual_backward_kernel"] * 3
