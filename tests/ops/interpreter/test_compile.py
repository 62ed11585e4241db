"""Triton's ops as torch.compile sees them: whole graphs, shapes, equal results."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_transnormer import ops
from fairseq_transnormer.ops.backend import capability, tf32_is_allowed
from fairseq_transnormer.ops.triton_ops import (  # noqa: F401  registers operators
    gated_silu,
    launching,
    lrpe,
    residual,
    rms_norm,
)
from fairseq_transnormer.ops.triton_ops.block_attention import launch  # noqa: F401
from fairseq_transnormer.ops.triton_ops.linear_attention import options

WIDTH = 32


def draw(length=40, count=3):
    """T x B x C in memory, as fairseq has it."""
    shape = length, 2, 2, WIDTH
    return [torch.randn(shape).transpose(0, 1) for _ in range(count)]


def encode(query, key, theta):
    reflection = torch.ones(WIDTH) / WIDTH**0.5
    positions = torch.arange(query.shape[1])
    return ops.lrpe(
        query, key, theta, reflection, positions, feature_map="elu", backend="triton"
    )


def attend(causal, state):
    def function(query, key, value, initial=None):
        initial_state = None
        if initial is not None:
            length = torch.zeros(2, dtype=torch.int64)
            initial_state = ops.LinearAttentionState(initial, None, length)
        result = ops.linear_attention(
            query,
            key,
            value,
            causal=causal,
            feature_map="1+elu",
            initial_state=initial_state,
            return_state=state,
            backend="triton",
        )
        if not state:
            return result
        return result[0], result[1].key_value

    return function


def attend_in_blocks(state):
    def function(query, key, value):
        result = ops.block_attention(
            query,
            key,
            value,
            block_size=16,
            causal=True,
            return_state=state,
            backend="triton",
        )
        return (result[0], *result[1][:2]) if state else result

    return function


def project(x, theta, *parameters):
    return ops.encoded_projections(
        x,
        parameters[:3],
        parameters[3:],
        theta,
        torch.ones(WIDTH) / WIDTH**0.5,
        torch.arange(x.shape[1]),
        heads=2,
        feature_map="elu",
        backend="triton",
    )


def draw_projections():
    weights = [torch.randn(2 * WIDTH, 12) for _ in "qkv"]
    return [
        *(torch.randn(2, 9, 12), torch.rand(WIDTH // 2), *weights),
        *(torch.randn(2 * WIDTH) for _ in "qkv"),
    ]


def draw_unit():
    sizes = (2, 9, 12), (13, 12), (13,), (13, 12), (13,), (12, 13), (12,)
    return [torch.randn(size) for size in sizes]


CASES = {
    "gated_linear_unit": (
        lambda *tensors: ops.gated_linear_unit(*tensors, backend="triton"),
        draw_unit,
    ),
    "encoded_projections": (project, draw_projections),
    "gated_silu": (
        lambda gate, value: ops.gated_silu(gate, value, backend="triton"),
        lambda: draw(count=2),
    ),
    "rms_norm": (
        lambda x: ops.rms_norm(x.flatten(2), backend="triton"),
        lambda: draw(count=1),
    ),
    "lrpe": (encode, lambda: [*draw(count=2), torch.rand(WIDTH // 2)]),
    "bidirectional": (attend(False, False), draw),
    "causal": (attend(True, False), draw),
    "causal, segments": (attend(True, False), lambda: draw(100)),
    "causal, state": (
        attend(True, True),
        lambda: [*draw(), torch.randn(2, 2, WIDTH, WIDTH)],
    ),
    "blocks": (attend_in_blocks(False), draw),
    "blocks, state": (attend_in_blocks(True), draw),
}


def results(function, tensors):
    """Outputs, and gradients of a loss over all of them."""
    leaves = [x.detach().requires_grad_() for x in tensors]
    outputs = function(*leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    loss = sum((x * x).sum() for x in outputs)
    return [*outputs, *torch.autograd.grad(loss, leaves)]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_compiled_graph_is_whole_and_gives_the_same_bits(case, monkeypatch):
    function, build = case
    rule = options.Rule(one_segment=1.0, smallest_segment=64)
    monkeypatch.setattr(options, "RULE", rule)
    tensors = build()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    for one, other in zip(
        results(compiled, tensors), results(function, tensors), strict=True
    ):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


@pytest.mark.parametrize(
    "name",
    ["causal", "bidirectional", "blocks", "gated_silu"],
)
def test_one_graph_serves_many_lengths(name):
    function, _ = CASES[name]
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(function, backend=count, fullgraph=True, dynamic=True)
    for length in (40, 50, 77):
        tensors = draw(length, 2 if name == "gated_silu" else 3)
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
    packed = torch.randn(2, 20, 3, 2, WIDTH)
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
        "lrpe_in_place": (packed, *parameters, "1+elu"),
        "lrpe_packed_backward": (packed, *parameters, q, None, v, "1+elu"),
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
        tests += ["test_autograd_registration", "test_aot_dispatch_dynamic"]
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


def test_tensors_without_memory_take_the_operators():
    """Shapes and strides of outputs and gradients, and nothing is launched."""
    with FakeTensorMode():
        x = torch.empty(5, 3, WIDTH, requires_grad=True)
    for function in (lambda x: ops.rms_norm(x, backend="triton"), gate_itself):
        output = function(x)
        assert isinstance(output, FakeTensor) and output.shape == x.shape
        (gradient,) = torch.autograd.grad(output.sum(), x)
        assert isinstance(gradient, FakeTensor) and gradient.shape == x.shape


def test_a_record_of_launches_goes_on_after_one_inside_it():
    seen, x = [], torch.ones(1)
    with launching.shapes_only(lambda kernel, arguments: seen.append(kernel)):
        with launching.shapes_only():
            launching.launch("inside", (1,), x)
        launching.launch("after", (1,), x)
    assert seen == ["after"]


def test_a_dispatch_mode_sees_operators():
    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    names, x = [], torch.randn(5, 3, WIDTH, requires_grad=True)
    with Names():
        output = gate_itself(x)
        output.backward(torch.ones_like(output))
    assert {"gated_silu", "gated_silu_backward"} <= set(names)
    torch.testing.assert_close(output, x * x.sigmoid() * x)


def gate_itself(x):
    return ops.gated_silu(x, x, backend="triton")
