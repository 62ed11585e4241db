"""The kernels that work by rows on a GPU: against float64, and as good as torch's."""

import pytest
import torch

from fairseq_transnormer import ops
from fairseq_transnormer.ops.verification.trials import slack_of

from ..ops.interpreter.poison import poisoned_memory  # noqa: F401
from .criterion import (
    assert_as_good_as_torch,
    assert_same_bits,
    dtypes,
    needs_memory,
)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poisoned_memory")]


def lrpe(query, key, theta, reflection, positions, feature_map, backend):
    return torch.stack(
        ops.lrpe(
            query,
            key,
            theta,
            reflection,
            positions,
            feature_map=feature_map,
            backend=backend,
        )
    )


def lrpe_case(feature_map, width, length, rows=False):
    """A function of the backend and differentiable tensors, and those."""
    v = torch.randn(width, device="cuda")
    v = v / v.norm()
    positions = torch.arange(length, device="cuda")
    if rows:
        positions = torch.stack((positions, positions + 100))
    theta = 10000.0 ** -(torch.arange(0, width, 2, device="cuda") / width)
    # T x B x C in memory, as fairseq has it
    query, key = (
        torch.randn(length, 2, 4, width, device="cuda").transpose(0, 1) for _ in "qk"
    )
    return (
        lambda backend, query, key, theta: lrpe(
            query, key, theta, v.to(theta.dtype), positions, feature_map, backend
        ),
        (query, key, theta),
    )


def norm_case(*shape):
    return (
        lambda backend, x: ops.rms_norm(x, backend=backend),
        (torch.randn(shape, device="cuda"),),
    )


def gate_case(*shape):
    return (
        lambda backend, *x: ops.gated_silu(*x, backend=backend),
        tuple(torch.randn(shape, device="cuda") for _ in range(2)),
    )


def residual_case(*shape):
    """A layer's three, without dropout."""

    def call(backend, x, y):
        x, z = ops.norm_beside(x, backend=backend)
        x, z = ops.add_and_norm(x, z * y, backend=backend)
        return ops.add_dropped(x, z, backend=backend)

    return call, tuple(torch.randn(shape, device="cuda") for _ in "xy")


def unit_case(width, inside):
    sizes = (inside, width), (inside,), (inside, width), (inside,), (width, inside)
    return (
        lambda backend, *x: ops.gated_linear_unit(*x, backend=backend),
        tuple(
            torch.randn(size, device="cuda") / size[-1] ** 0.5
            for size in ((3, 171, width), *sizes, (width,))
        ),
    )


CASES = {
    "residual 512": (residual_case, 3, 171, 512),
    "gated_linear_unit 365": (unit_case, 128, 365),
    **{
        f"lrpe {phi} {width} {length}": (lrpe_case, phi, width, length)
        for phi, width, length in [
            ("identity", 64, 512),
            ("elu", 32, 130),
            ("1+elu", 64, 513),
            ("1+elu", 128, 64),
            ("relu", 64, 1),
        ]
    },
    "lrpe, positions of each row": (lrpe_case, "1+elu", 64, 70, True),
    "rms_norm 512": (norm_case, 3, 171, 512),
    "rms_norm 1000": (norm_case, 77, 1000),
    "rms_norm 8192": (norm_case, 5, 8192),
    "gated_silu": (gate_case, 3, 171, 1365),
    "gated_silu, one": (gate_case, 1),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def results(call, backend, tensors, weight):
    """The output and every gradient of sum(weight * output)."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    output = call(backend, *leaves)
    grads = torch.autograd.grad(output, leaves, weight.to(output.dtype))
    return [output.detach(), *grads]


def in_dtype(tensors, dtype):
    """theta, the only vector of a case, stays in float32."""
    return [t if t.dim() == 1 and len(tensors) == 3 else t.to(dtype) for t in tensors]


@cases
@dtypes
def test_errors_are_at_most_twice_those_of_torch(case, dtype):
    build, *arguments = case
    call, tensors = build(*arguments)
    tensors = in_dtype(tensors, dtype)
    weight = torch.randn_like(call("torch", *tensors))
    computed = results(call, "triton", tensors, weight)
    peer = results(call, "torch", tensors, weight)
    exact = results(call, "torch", [t.double() for t in tensors], weight)
    assert_as_good_as_torch(computed, peer, exact, slack_of(dtype, products=False))


@cases
def test_a_second_run_gives_the_same_bits(case):
    build, *arguments = case
    call, tensors = build(*arguments)
    tensors = in_dtype(tensors, torch.bfloat16)
    weight = torch.randn_like(call("triton", *tensors))
    assert_same_bits(*(results(call, "triton", tensors, weight) for _ in range(2)))


@dtypes
def test_a_dropped_part(dtype):
    """How much, how the rest grows, and the same in the backward pass."""
    x, y = (torch.ones(64, 100, 512, device="cuda", dtype=dtype) for _ in "xy")
    y.requires_grad_()
    torch.manual_seed(1)
    total, _ = ops.add_and_norm(x, y, dropout_p=0.25, backend="triton")
    kept = total > 1
    assert abs(kept.double().mean().item() - 0.75) < 2e-3
    assert ((total[kept].double() - 1 - 1 / 0.75).abs() < 1e-2).all()
    total.sum().backward()
    assert torch.equal(y.grad > 0, kept)
    torch.manual_seed(1)
    again, _ = ops.add_and_norm(x, y, dropout_p=0.25, backend="triton")
    assert torch.equal(again, total)


@pytest.mark.parametrize(
    ("op", "gib"), [("rms_norm", 14), ("gated_silu", 18), ("lrpe", 22)]
)
def test_more_elements_than_32_bits_count(op, gib):
    """The last rows, behind element 2^31, are those of a call of their own."""
    needs_memory(gib)
    length, heads, width = 2**20 + 3, 32, 64
    shape = (1, length, heads, width)
    x = torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_()
    assert x.numel() > 2**31
    if op == "lrpe":
        v = torch.ones(width, device="cuda") / width**0.5
        positions = torch.arange(length, device="cuda") % 1000
        theta = torch.rand(width // 2, device="cuda")
        output = ops.lrpe(x, x, theta, v, positions, backend="triton")[1]
        last = ops.lrpe(
            x[:, -5:], x[:, -5:], theta, v, positions[-5:], backend="triton"
        )[1]
    elif op == "rms_norm":
        output = ops.rms_norm(x, backend="triton")
        last = ops.rms_norm(x[:, -5:], backend="triton")
    else:
        output = ops.gated_silu(x, x, backend="triton")
        last = ops.gated_silu(x[:, -5:], x[:, -5:], backend="triton")
    assert torch.equal(output[:, -5:], last)
    assert output[:, : 2**10].isfinite().all()


@cases
def test_auto_takes_the_kernels(case, monkeypatch):
    build, *arguments = case
    call, tensors = build(*arguments)
    monkeypatch.delenv(ops.ENVIRONMENT_VARIABLE, raising=False)
    tensors = in_dtype(tensors, torch.bfloat16)
    assert torch.equal(call("auto", *tensors), call("triton", *tensors))
