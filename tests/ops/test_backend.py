"""Which implementation runs: the caller's word, then the environment's."""

import warnings
from functools import partial

import pytest
import torch
from torch._dynamo.exc import Unsupported

from fairseq_transnormer.ops import (
    BACKENDS,
    ENVIRONMENT_VARIABLE,
    backend,
    block_attention,
    gated_linear,
    gated_silu,
    linear_attention,
    linear_cross_entropy,
    lrpe,
    resolve_backend,
    rms_norm,
)
from fairseq_transnormer.ops.backend import constant_when_compiled
from tests.messages import refuses

X = torch.ones(1, 3, 1, 2)
CALLS = {
    "linear_attention": lambda **o: linear_attention(X, X, X, causal=True, **o)[0],
    "block_attention": lambda **o: block_attention(
        X, X, X, block_size=16, causal=True, **o
    )[0],
    "lrpe": lambda **o: lrpe(X, X, X[0, 0, 0, :1], X[0, 0, 0], torch.arange(3), **o),
    "rms_norm": lambda **o: rms_norm(X, **o),
    "gated_silu": lambda **o: gated_silu(X, X, **o),
    "gated_linear": lambda **o: gated_linear(X, X, X[0, :, 0], **o),
    "linear_cross_entropy": lambda **o: linear_cross_entropy(
        X[0, :, 0], X[0, :, 0], torch.arange(3), **o
    ),
}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)


def test_auto_follows_the_environment(monkeypatch):
    assert resolve_backend("auto") == "auto"
    for name in BACKENDS:
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, name)
        assert resolve_backend("auto") == name
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "")
    assert resolve_backend("auto") == "auto"


def test_the_caller_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "reference")
    assert resolve_backend("torch") == "torch"
    # even over a value that is none
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "cuda")
    assert resolve_backend("reference") == "reference"


def test_unknown_names_are_answered_with_the_list(monkeypatch):
    with refuses(ValueError, "backend='cuda'", *BACKENDS):
        resolve_backend("cuda")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "Torch.1")
    with refuses(ValueError, ENVIRONMENT_VARIABLE, "Torch.1", *BACKENDS):
        resolve_backend("auto")


@calls
def test_every_op_takes_every_name(call):
    results = [call(backend=name) for name in ("auto", "torch", "reference")]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


@calls
def test_every_op_asks_for_its_backend(call, monkeypatch):
    with refuses(ValueError, "backend='cuda'", *BACKENDS):
        call(backend="cuda")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "cuda")
    with refuses(ValueError, ENVIRONMENT_VARIABLE, "cuda", *BACKENDS):
        call()


def test_what_is_selected_is_what_runs(monkeypatch):
    implementations = {"torch": lambda: "torch", "reference": lambda: "reference"}
    select = partial(
        backend.select,
        implementations,
        tensors=[X],
        kernels=lambda: backend.Kernels("op"),
    )
    assert select("auto")() == "torch"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "reference")
    assert select("auto")() == "reference"
    assert select("torch")() == "torch"


@calls
def test_triton_says_why_it_cannot_run(call):
    with refuses(ValueError, "backend='triton'", "cpu", "CUDA"):
        call(backend="triton")


def test_triton_names_what_its_kernels_lack():
    lacks = partial(refuses, ValueError, "backend='triton'")
    kernels = partial(backend.Kernels, "op")
    with lacks("torch.float64", "torch.bfloat16"):
        backend.select({}, "triton", [X.double()], kernels)
    with lacks("cpu", "CUDA"):
        backend.select({}, "triton", [X], kernels)
    with lacks("block_size", 65, 16, 32):
        block_attention(X, X, X, block_size=65, causal=True, backend="triton")


def test_the_compiler_takes_what_a_machine_has_as_a_constant():
    """Though it cannot follow how that is found out."""

    def found_out() -> int:
        with open(__file__, encoding="utf-8") as file:
            return len(file.readline())

    def compiled(function):
        return torch.compile(lambda x: x + function(), backend="eager", fullgraph=True)(
            X
        )

    torch.compiler.reset()
    with pytest.raises(Unsupported):
        compiled(found_out)
    assert torch.equal(compiled(constant_when_compiled(found_out)), X + found_out())


@calls
def test_tracing_an_op_warns_of_nothing(call):
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        torch.compile(call, backend="eager")()


def test_shapes_on_a_device_without_autocast():
    x = torch.zeros(2, 20, 3, 8, device="meta")
    for call in (
        linear_attention(x, x, x, causal=True)[0],
        linear_attention(x, x, x, causal=True, normalize=True)[0],
        linear_attention(x, x, x, causal=False)[0],
        block_attention(x, x, x, block_size=16, causal=True)[0],
        block_attention(x, x, x, block_size=16, causal=False, activation="relu")[0],
        rms_norm(x),
        gated_silu(x, x),
    ):
        assert call.shape == x.shape
