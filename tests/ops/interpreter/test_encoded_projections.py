"""Queries, keys and values from one product, against three and ops.lrpe in float64."""

import pytest
import torch

from fairseq_transnormer.ops import encoded_projections

from ..drawing import gradients, relative_error
from .tolerances import dtypes

pytestmark = pytest.mark.usefixtures("poisoned_memory")
HEADS, WIDTH, INPUTS = 3, 32, 20


def draw(length, dtype, batch=2):
    x = torch.randn(batch, length, INPUTS).to(dtype)
    weights = [torch.randn(HEADS * WIDTH, INPUTS) / INPUTS**0.5 for _ in "qkv"]
    biases = [0.3 * torch.randn(HEADS * WIDTH) for _ in "qkv"]
    theta = 10000.0 ** -(torch.arange(0, WIDTH, 2) / WIDTH)
    return [x, theta, *(t.to(dtype) for t in (*weights, *biases))]


def function(backend, positions, feature_map, which=(0, 1, 2)):
    generator = torch.Generator().manual_seed(1)
    reflection = torch.randn(WIDTH, generator=generator)
    reflection = reflection / reflection.norm()

    def call(x, theta, *parameters):
        results = encoded_projections(
            x,
            parameters[:3],
            parameters[3:],
            theta,
            reflection.to(theta.dtype),
            positions,
            heads=HEADS,
            feature_map=feature_map,
            backend=backend,
        )
        for result in results:
            assert result.shape == (*x.shape[:2], HEADS, WIDTH)
        return torch.stack([results[i] for i in which])

    return call


def check(tensors, positions, tolerance, feature_map="1+elu", which=(0, 1, 2)):
    wide = [t.double() for t in tensors]
    op = function("triton", positions, feature_map, which)
    exact = function("torch", positions, feature_map, which)
    expected = exact(*wide)
    assert relative_error(op(*tensors), expected) < tolerance
    weight = torch.randn(expected.shape)
    for gradient, wanted, tensor in zip(
        gradients(op, tensors, weight),
        gradients(exact, wide, weight),
        tensors,
        strict=True,
    ):
        if wanted is None:
            assert gradient is None or (gradient == 0).all()
            continue
        assert gradient.dtype == tensor.dtype
        # of biases and theta: sums with both signs
        assert relative_error(gradient, wanted) < 3 * tolerance


@dtypes
@pytest.mark.parametrize("feature_map", ["identity", "1+elu"])
def test_results_and_gradients(feature_map, dtype, tolerance):
    check(draw(17, dtype), torch.arange(17), tolerance, feature_map)


@pytest.mark.parametrize("feature_map", ["elu", "relu"])
def test_other_feature_maps(feature_map):
    check(draw(5, torch.float32), torch.arange(5), 1e-5, feature_map)


def test_each_row_has_positions_of_its_own():
    positions = torch.tensor([[4, 5, 6], [0, 1, 2]])
    check(draw(3, torch.float32), positions, 1e-5)


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 2)])
def test_gradients_that_do_not_arrive(which):
    check(draw(5, torch.float32), torch.arange(5), 1e-5, which=which)


def test_many_programs_loop_over_the_heads(monkeypatch):
    from fairseq_transnormer.ops.triton_ops import lrpe

    monkeypatch.setattr(lrpe, "FEW_PROGRAMS", 2)
    check(draw(70, torch.float32), torch.arange(70), 1e-5)


@pytest.mark.parametrize("wanted", range(8))
def test_gradient_of_one_input_alone(wanted):
    tensors = draw(5, torch.float32)
    tensors[wanted].requires_grad_()
    function("triton", torch.arange(5), "1+elu")(*tensors).sum().backward()
    exact = function("torch", torch.arange(5), "1+elu")
    wide = [t.detach().double() for t in tensors]
    expected = gradients(exact, wide, torch.ones(3, 2, 5, HEADS, WIDTH))[wanted]
    assert relative_error(tensors[wanted].grad, expected) < 1e-4
    assert all(t.grad is None for i, t in enumerate(tensors) if i != wanted)


def test_under_autocast():
    """Projected and encoded in bfloat16; gradients in the parameters' float32."""
    tensors, positions = draw(9, torch.float32), torch.arange(9)
    call = function("triton", positions, "1+elu")

    def op(*tensors):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return call(*tensors)

    assert op(*tensors).dtype == torch.bfloat16
    weight = torch.randn(3, 2, 9, HEADS, WIDTH)
    for gradient, wanted in zip(
        gradients(op, tensors, weight),
        gradients(
            function("torch", positions, "1+elu"), [t.double() for t in tensors], weight
        ),
        strict=True,
    ):
        assert gradient.dtype == torch.float32
        assert relative_error(gradient, wanted) < 5e-2


def test_no_rows():
    """As the last rank of a training has, where the data do not go round."""
    x = torch.randn(0, 3, 64, requires_grad=True)
    weights, biases = (torch.randn(64, 64),) * 3, (torch.randn(64),) * 3
    results = encoded_projections(
        x, weights, biases, torch.ones(16), torch.eye(32)[0], torch.arange(3),
        heads=2, backend="triton",
    )  # fmt: skip
    sum(result.sum() for result in results).backward()
    assert all(result.shape == (0, 3, 2, 32) for result in results)
    assert x.grad.shape == x.shape
