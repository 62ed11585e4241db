"""Which implementation runs: the caller's word, then the environment's."""

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


@calls
def test_every_op_takes_every_name(call):
    results = [call(backend=name) for name in ("auto", "torch", "reference")]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


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
