"""ops.lrpe against the matrix form R(position * theta) (I - 2 v v^T) in float64."""

import pytest
import torch

from fairseq_transnormer import ops
from fairseq_transnormer.ops import FEATURE_MAPS
from tests.messages import refuses

from . import equations
from .drawing import CPU_BACKENDS, gradients, relative_error

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


def matrix_form(x, theta, reflection, positions):
    """One matrix for each row and position."""
    positions = positions.expand(x.shape[0], -1)
    return torch.stack(
        [
            torch.stack(
                [
                    x[b, n].double() @ equations.lrpe_matrix(p, theta, reflection).T
                    for n, p in enumerate(row.tolist())
                ]
            )
            for b, row in enumerate(positions)
        ]
    )


@backends
@pytest.mark.parametrize("width", [2, 6, 8, 64])
@pytest.mark.parametrize(
    "positions",
    [torch.arange(5), torch.tensor([[0, 1, 2, 3, 4], [511, 7, 0, 63, 5000]])],
    ids=["shared", "a row's own"],
)
def test_matrix_form(positions, width, backend):
    x, theta, v = draw(5, width)
    output = lrpe(x, theta, v, positions, backend=backend)
    assert output.dtype == x.dtype and output.shape == x.shape
    assert relative_error(output, matrix_form(x, theta, v, positions)) < 1e-12


@backends
@pytest.mark.parametrize(
    "positions", [torch.arange(3), torch.tensor([[4, 0, 9], [2, 2, 1]])]
)
def test_gradcheck_in_x_and_theta(positions, backend):
    x, theta, v = draw(3, 4)
    assert torch.autograd.gradcheck(
        lambda x, theta: lrpe(x, theta, v, positions, backend=backend),
        (x.requires_grad_(), theta.requires_grad_()),
    )


@pytest.mark.parametrize("needs_grad", [(True, False), (False, True)])
def test_gradient_of_one_input_alone(needs_grad):
    x, theta, v = draw(3, 4)
    tensors = x.requires_grad_(needs_grad[0]), theta.requires_grad_(needs_grad[1])
    assert torch.autograd.gradcheck(
        lambda x, theta: lrpe(x, theta, v, torch.arange(3)), tensors
    )


@backends
def test_the_reflection_gets_no_gradient(backend):
    x, theta, v = draw(3, 4)
    v.requires_grad_(False)
    lrpe(
        x, theta.requires_grad_(), v, torch.arange(3), backend=backend
    ).sum().backward()
    assert v.grad is None and theta.grad is not None


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
    expected = matrix_form(x, theta, v, torch.tensor([position]))
    assert relative_error(output, expected) < tolerance


def test_angles_in_half_precision_would_be_wrong():
    """What the test above guards against."""
    x, theta, v = draw(1, 64)
    position = torch.tensor([511])
    angles = position.bfloat16() * theta.bfloat16()
    assert (angles - 511 * theta).abs().max() > 0.9
    rounded = matrix_form(x, angles.double() / 511, v, position)
    assert relative_error(rounded, matrix_form(x, theta, v, position)) > 0.05


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, 1e-3), (torch.bfloat16, 6e-3)]
)
def test_gradients_in_half_precision(dtype, tolerance):
    x, theta, v = draw(40, 16, dtype=dtype)
    weight = torch.randn_like(x)
    positions = torch.arange(40)
    computed = gradients(lambda *t: lrpe(*t, v, positions), (x, theta), weight)
    expected = gradients(
        lambda *t: matrix_form(*t, v, positions), (x.double(), theta.double()), weight
    )
    for gradient, wanted, tensor in zip(computed, expected, (x, theta), strict=True):
        assert gradient.dtype == tensor.dtype
        assert relative_error(gradient, wanted) < tolerance


@backends
def test_strides_do_not_matter(backend):
    x, theta, v = draw(5)
    view = x.permute(1, 0, 2, 3).contiguous().permute(1, 0, 2, 3)
    assert not view.is_contiguous()
    positions = torch.arange(5)
    output = lrpe(view, theta, v, positions, backend=backend)
    torch.testing.assert_close(output, lrpe(x, theta, v, positions, backend=backend))


@backends
def test_what_does_not_fit_is_named(backend):
    x, theta, v = draw(3, 7)
    with refuses(ValueError, "head width", 7, "even"):
        lrpe(x, theta, v, torch.arange(3), backend=backend)
    x, theta, v = draw(3, 8)
    with refuses(ValueError, "theta", (3,), (4,), "reflection", (8,)):
        lrpe(x, theta[:3], v, torch.arange(3), backend=backend)
    with refuses(ValueError, "theta", (4,), "reflection", (6,), (8,)):
        lrpe(x, theta, v[:6], torch.arange(3), backend=backend)


@backends
def test_whole_numbers_are_refused(backend):
    """Their rotated values would be cut off."""
    _, theta, v = draw(3, 8)
    x = torch.ones(1, 3, 1, 8, dtype=torch.int64)
    with refuses(ValueError, "query", "torch.int64", "float32"):
        ops.lrpe(x, x, theta, v, torch.arange(3), backend=backend)


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
@pytest.mark.parametrize("feature_map", FEATURE_MAPS)
def test_query_and_key_after_a_feature_map(feature_map, backend):
    query, theta, v = draw(5)
    key, positions = torch.randn_like(query), torch.arange(5)
    tensors = [x.requires_grad_() for x in (query, key, theta)]

    def both(query, key, theta):
        outputs = ops.lrpe(
            query, key, theta, v, positions, feature_map=feature_map, backend=backend
        )
        return torch.cat(outputs)

    def expected(query, key, theta):
        phi = equations.FEATURE_MAPS[feature_map]
        encoded = [matrix_form(phi(x), theta, v, positions) for x in (query, key)]
        return torch.cat(encoded)

    torch.testing.assert_close(both(*tensors), expected(*tensors))
    weight = torch.randn(4, 5, 3, 8, dtype=torch.float64)
    for gradient, wanted in zip(
        gradients(both, tensors, weight),
        gradients(expected, tensors, weight),
        strict=True,
    ):
        torch.testing.assert_close(gradient, wanted)


@backends
def test_one_plus_elu_far_below_zero(backend):
    query, theta, v = draw(5, dtype=torch.float32)
    for shift in (10, 16, 18):
        x = query - shift
        mapped = equations.FEATURE_MAPS["1+elu"](x.double())
        expected = matrix_form(mapped, theta, v, torch.arange(5))
        options = {"feature_map": "1+elu", "backend": backend}
        found = lrpe(x, theta, v, torch.arange(5), **options)
        assert relative_error(found, expected) < 1e-6


def test_query_and_key_must_agree():
    query, theta, v = draw(5)
    short = query[:, :3]
    shapes = [tuple(x.shape) for x in (short, query)]
    with refuses(ValueError, "key", shapes[0], "query", shapes[1], "agree"):
        ops.lrpe(query, short, theta, v, torch.arange(5))
    with refuses(ValueError, "feature_map='tanh'", *FEATURE_MAPS):
        ops.lrpe(query, query, theta, v, torch.arange(5), feature_map="tanh")
