"""Triton's ops as torch.compile sees them, beside the law of one graph."""

import pytest
import torch

from fairseq_transnormer import ops
from fairseq_transnormer.ops.backend import capability, tf32_is_allowed
from fairseq_transnormer.ops.block_attention import triton_impl  # noqa: F401
from fairseq_transnormer.ops.kernels import (  # noqa: F401  registers operators
    gated_silu,
    launch,
    lrpe,
    residual,
    rms_norm,
)
from tests.operators import Operators

WIDTH = 32


def draw(length=40, count=3):
    """T x B x C in memory, as fairseq has it."""
    return [torch.randn(length, 2, 2, WIDTH).transpose(0, 1) for _ in range(count)]


FUNCTIONS = {
    "causal": lambda *x: ops.linear_attention(*x, causal=True, backend="triton")[0],
    "blocks": lambda *x: ops.block_attention(
        *x, block_size=16, causal=True, backend="triton"
    )[0],
}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_one_graph_serves_many_lengths(function):
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(function, backend=count, fullgraph=True, dynamic=True)
    for length in (20, 40):
        tensors = draw(length)
        assert torch.equal(compiled(*tensors), function(*tensors))
    assert len(graphs) == 1


@torch.no_grad()
@pytest.mark.parametrize("op", ["linear", "averages", "block"])
def test_compiled_steps_update_their_state(op):
    def step(query, key, value, *state):
        if op != "block":
            kind, options = ops.LinearAttentionState, {"normalize": op == "averages"}
            call = ops.linear_attention
        else:
            kind, options = ops.BlockAttentionState, {"block_size": 16}
            call = ops.block_attention
        output, after = call(
            query,
            key,
            value,
            causal=True,
            initial_state=kind(*state),
            return_state=True,
            backend="triton",
            **options,
        )
        return output, after.length

    length = torch.tensor([3, 9])
    if op != "block":
        sums = torch.rand(2, 2, WIDTH) if op == "averages" else None
        state = [torch.randn(2, 2, WIDTH, WIDTH), sums, length]
    else:
        state = [*(torch.randn(2, 16, 2, WIDTH) for _ in "kv"), length]
    again = [None if x is None else x.clone() for x in state]
    token = draw(1)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    for x, y in zip(compiled(*token, *state), step(*token, *again), strict=True):
        assert torch.equal(x, y)
    for x, y in zip(state, again, strict=True):
        assert x is y or torch.equal(x, y)


def operator_calls():
    """Name and arguments of every custom operator."""
    q, k, v = draw(20)
    rows = torch.randn(3, 5, WIDTH)
    state = torch.randn(2, 2, WIDTH, WIDTH)
    pads = torch.zeros(2, 20, dtype=torch.uint8)
    parameters = torch.rand(16), torch.rand(WIDTH), torch.arange(20)
    cache = [torch.randn(2, 16, 2, WIDTH) for _ in "kv"]
    length = torch.tensor([3, 9])
    token = draw(1)
    blocks = 16, True, "softmax", 0.2, 0.3, 2**62 + 3
    sums = torch.zeros(4, 1, WIDTH, WIDTH)
    vector = torch.rand(2, 2, WIDTH)
    return {
        "gated_silu": (q, k),
        "gated_silu_backward": (q, k, v),
        "gated_silu_gradients": (q, k, v),
        "gate_of_halves": (rows.flatten(1),),
        "gradient_of_halves": (rows.flatten(1), torch.randn(3, 80)),
        "rms_norm": (rows, 1e-8),
        "rms_norm_backward": (rows, torch.rand(3, 5), rows.clone()),
        "residual": (rows, rows.clone(), 0.5, 2**62 + 3, 1e-8, True),
        "residual_backward": (
            *(rows, torch.rand(3, 5), None, rows.clone(), 0.5, 2**62 + 3),
            *(torch.float32, torch.bfloat16),
        ),
        "lrpe": (q, k, *parameters, "1+elu"),
        "lrpe_backward": (q, k, *parameters, v, None, "1+elu"),
        "causal_linear_attention": (*(q, k, v, state, pads, True),),
        "causal_linear_attention_backward": (
            *(q, k, v, v.clone(), None, state, pads, None, True),
        ),
        "bidirectional_linear_attention": (q, k, v, pads),
        "bidirectional_linear_attention_backward": (*(q, k, v, v.clone(), pads, sums),),
        "linear_attention_step": (
            *(*token, None, state.clone(), vector.clone(), "elu", 1e-6),
        ),
        "block_attention": (q, k, v, pads.bool(), *blocks),
        "block_attention_backward": (q, k, v, None, v.clone(), *blocks),
        "block_attention_step": (*token, *cache, length, "relu", 0.2),
    }


CALLS = operator_calls()


@pytest.mark.parametrize("name", CALLS)
def test_operators_keep_torchs_rules(name):
    """Schema, aliasing and, with tensors without memory, shapes and strides."""
    operator = getattr(torch.ops.fairseq_transnormer, name).default
    differentiable = f"{name}_backward" in CALLS and name != "residual"
    arguments = [
        x.clone().requires_grad_()
        if differentiable and isinstance(x, torch.Tensor) and x.is_floating_point()
        else x
        for x in CALLS[name]
    ]
    tests = ["test_schema", "test_faketensor"]
    if differentiable:
        tests += ["test_autograd_registration"]
        if name not in ("causal_linear_attention", "block_attention"):
            # of these, test_one_graph_serves_many_lengths
            tests += ["test_aot_dispatch_dynamic"]
    torch.library.opcheck(operator, tuple(arguments), test_utils=tests)


def test_what_the_choice_asks_for_can_be_compiled():
    """On a GPU the choice of a backend is made while the graph is traced."""

    def function(x):
        return x + capability(x.device)[0] + tf32_is_allowed()

    compiled = torch.compile(function, backend="eager", fullgraph=True)
    x = torch.zeros(2)
    assert torch.equal(compiled(x), function(x))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert tf32_is_allowed()
        assert torch.equal(compiled(x), function(x))
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_dispatch_mode_sees_operators():
    x = torch.randn(5, 3, WIDTH, requires_grad=True)
    with Operators() as operators:
        output = gate_itself(x)
        output.backward(torch.ones_like(output))
    assert {"gated_silu", "gated_silu_backward"} <= operators.names
    torch.testing.assert_close(output, x * x.sigmoid() * x)


def gate_itself(x):
    return ops.gated_silu(x, x, backend="triton")
