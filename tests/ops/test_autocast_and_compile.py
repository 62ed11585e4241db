"""The ops under torch.autocast and torch.compile give what they give without."""

import pytest
import torch

from fairseq_transnormer.ops import (
    block_attention,
    gated_linear,
    gated_silu,
    linear_attention,
    lrpe,
    rms_norm,
)

from .drawing import gradients, relative_error

EIGHT = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
FUNCTIONS = {
    "linear, causal": lambda q, k, v: linear_attention(q, k, v, causal=True),
    "linear, normalized": lambda q, k, v: linear_attention(
        q, k, v, causal=True, normalize=True
    ),
    "linear, bidirectional": lambda q, k, v: linear_attention(q, k, v, causal=False),
    "block, softmax": lambda q, k, v: block_attention(
        q, k, v, block_size=16, causal=True
    ),
    "block, relu": lambda q, k, v: block_attention(
        q, k, v, block_size=16, causal=False, activation="relu"
    ),
    "lrpe": lambda x, y, z: lrpe(
        x,
        y,
        torch.linspace(1, 0.1, 4, dtype=torch.float32),
        torch.full((8,), 8**-0.5),
        torch.arange(x.shape[1]),
    )[0],
    "rms_norm": lambda x, y, z: rms_norm(x),
    "gated_silu": lambda x, y, z: gated_silu(x, y),
    "gated_linear": lambda x, y, z: gated_linear(x, y, EIGHT),
}
functions = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


def draw():
    return [torch.rand(2, 150, 2, 8) for _ in range(3)]


@pytest.mark.parametrize(
    "function",
    # its matrix product is autocast's to cast
    [function for name, function in FUNCTIONS.items() if name != "gated_linear"],
    ids=[name for name in FUNCTIONS if name != "gated_linear"],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_leaves_float32_sums_alone(function, dtype):
    tensors, weight = draw(), torch.randn(2, 150, 2, 8)

    def under_autocast(*tensors):
        with torch.autocast("cpu", dtype=dtype):
            # a matrix product beside the op is cast: the context is at work
            assert (tensors[0] @ tensors[1].transpose(-1, -2)).dtype == dtype
            return function(*tensors)

    output = under_autocast(*tensors)
    assert output.dtype == torch.float32
    assert torch.equal(output, function(*tensors))
    for result, wanted in zip(
        gradients(under_autocast, tensors, weight),
        gradients(function, tensors, weight),
        strict=True,
    ):
        assert wanted is None if result is None else torch.equal(result, wanted)


def test_half_precision_sums_under_autocast():
    """bfloat16 inputs, as projections under autocast give them; float32 sums inside."""
    q, k, v = (torch.ones(1, 1000, 1, 8, dtype=torch.bfloat16) for _ in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, state = linear_attention(q, k, v, causal=True, return_state=True)
        # bfloat16 sums of ones stop growing at 256
        assert (state.key_value == 1000).all()
    assert relative_error(output[0, :, 0, 0], 8 * torch.arange(1, 1001)) < 3e-3


@functions
@pytest.mark.parametrize(
    "backend", [pytest.param("eager", marks=pytest.mark.slow), "aot_eager"]
)
def test_compile_equals_eager(function, backend):
    torch.compiler.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    tensors, weight = draw(), torch.randn(2, 150, 2, 8)
    torch.testing.assert_close(compiled(*tensors), function(*tensors))
    for result, wanted in zip(
        gradients(compiled, tensors, weight),
        gradients(function, tensors, weight),
        strict=True,
    ):
        if wanted is None:
            assert result is None or (result == 0).all()
        else:
            torch.testing.assert_close(result, wanted)


def test_shapes_on_a_device_without_autocast():
    x = torch.zeros(2, 20, 3, 8, device="meta")
    for name, function in FUNCTIONS.items():
        if name not in ("lrpe", "gated_linear"):  # their weights here are on the CPU
            assert function(x, x, x).shape == x.shape, name
