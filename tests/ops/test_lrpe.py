"""ops.lrpe beside its laws: what the rotation keeps, angles far out, refusals."""

import pytest
import torch

from fairseq_transnormer import ops
from tests.messages import refuses

from . import equations
from .drawing import CPU_BACKENDS, relative_error

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)


def lrpe(x, *arguments, **options):
    """ops.lrpe of one tensor."""
    return ops.lrpe(x, x.detach(), *arguments, **options)[0]


def draw(length, width=8, *, batch=2, heads=3, dtype=torch.float64):
    x = torch.randn(batch, length, heads, width, dtype=torch.float64).to(dtype)
    theta = 10000.0 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    direction = torch.randn(width, dtype=torch.float64)
    # the parameters stay in float32 beside half-precision inputs
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    return x, theta.to(kept), (direction / direction.norm()).to(kept)


def test_the_laws_equation_is_the_matrix_of_each_position():
    x, theta, v = draw(3)
    output = equations.lrpe(x, theta, v, torch.arange(3))
    for position in range(3):
        matrix = equations.lrpe_matrix(position, theta, v)
        torch.testing.assert_close(output[:, position], x[:, position] @ matrix.T)


@backends
def test_the_reflection_gets_no_gradient(backend):
    x, theta, v = draw(3, 4)
    v.requires_grad_(False)
    lrpe(
        x, theta.requires_grad_(), v, torch.arange(3), backend=backend
    ).sum().backward()
    assert v.grad is None and theta.grad is not None


@backends
def test_tokens_have_heads(backend):
    x, theta, v = draw(3)
    with refuses(ValueError, "query", (2, 3, 8), "heads"):
        lrpe(x[:, :, 0], theta, v, torch.arange(3), backend=backend)


def test_a_gradient_anywhere_in_memory():
    """... of a part of a tensor too, which cannot be viewed as complex numbers."""
    x, theta, v = draw(3)
    parts = torch.randn(x.numel() + 1, dtype=x.dtype)
    gradients = []
    for grad in (parts[1:].view_as(x), parts[1:].clone().view_as(x)):
        output = lrpe(x.requires_grad_(), theta, v, torch.arange(3), backend="torch")
        gradients += torch.autograd.grad(output, x, grad)
    assert torch.equal(*gradients)


@backends
def test_products_depend_on_the_difference_of_positions_only(backend):
    query, theta, v = draw(1)
    key = torch.randn_like(query)

    def product(i, j):
        q = lrpe(query, theta, v, torch.tensor([i]), backend=backend)
        k = lrpe(key, theta, v, torch.tensor([j]), backend=backend)
        return (q * k).sum(-1)

    for difference in (-7, 0, 1, 100):
        expected = product(difference + 10, 10)
        for j in (7, 63, 1000):
            torch.testing.assert_close(product(j + difference, j), expected)
    assert not torch.allclose(product(10, 10), product(11, 10))


@backends
def test_lengths_of_vectors_are_kept(backend):
    x, theta, v = draw(4)
    output = lrpe(x, theta, v, torch.arange(4), backend=backend)
    torch.testing.assert_close(output.norm(dim=-1), x.norm(dim=-1))


# Output rounding is 2^-9 (bfloat16) and 2^-12 (float16); float32 angles at position
# 5000 are off by 5000 * 2^-24 = 3e-4 at most.
@backends
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 2e-4), (torch.float16, 5e-4), (torch.bfloat16, 3e-3)],
)
@pytest.mark.parametrize("position", [0, 63, 511, 5000])
def test_angles_are_accurate_far_out(position, dtype, tolerance, backend):
    x, theta, v = draw(1, 64, dtype=dtype)
    output = lrpe(x, theta, v, torch.tensor([position]), backend=backend)
    assert output.dtype == dtype
    expected = equations.lrpe(x, theta, v, torch.tensor([position]))
    assert relative_error(output, expected) < tolerance


@backends
@pytest.mark.parametrize(
    "positions",
    [
        torch.arange(1),
        torch.tensor(2),
        torch.zeros(1, 3).long(),
        torch.zeros(4, 1).long(),
    ]
    + [torch.arange(2), torch.arange(3, dtype=torch.bfloat16)],
    ids=lambda x: f"{x.dtype}-{tuple(x.shape)}",
)
def test_positions_are_not_broadcast(positions, backend):
    x, theta, v = draw(3, 8)
    rows = x.shape[0]
    with refuses(ValueError, "positions", tuple(positions.shape), (3,), (rows, 3)):
        lrpe(x, theta, v, positions, backend=backend)


@backends
def test_one_plus_elu_far_below_zero(backend):
    query, theta, v = draw(5, dtype=torch.float32)
    for shift in (10, 16, 18):
        x = query - shift
        mapped = equations.FEATURE_MAPS["1+elu"](x.double())
        expected = equations.lrpe(mapped, theta, v, torch.arange(5))
        options = {"feature_map": "1+elu", "backend": backend}
        found = lrpe(x, theta, v, torch.arange(5), **options)
        assert relative_error(found, expected) < 1e-6
