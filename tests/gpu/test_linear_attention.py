"""Triton's linear attention on a GPU: against float64, and as good as torch's.

A dtype, a pair of widths, a form and a feature map make a kernel that has to be
compiled, a second or so each: the cases are chosen to share them.
"""

import pytest
import torch

from fairseq_transnormer.ops import LinearAttentionState, linear_attention
from fairseq_transnormer.ops.verification.trials import slack_of

from ..ops.drawing import relative_error
from ..ops.interpreter.poison import poisoned_memory  # noqa: F401
from .criterion import (
    assert_as_good_as_torch,
    assert_same_bits,
    dtypes,
    needs_memory,
    tf32,  # noqa: F401
)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poisoned_memory", "tf32")]

causalities = pytest.mark.parametrize("causal", [True, False])


def draw(length, dtype, width=64, value_width=64, batch=2):
    """T x B x C in memory, as fairseq has it."""
    return [
        torch.randn(length, batch, 4, w, device="cuda").to(dtype).transpose(0, 1)
        for w in (width, width, value_width)
    ]


def draw_state(width=64, value_width=64):
    key_value = torch.randn(2, 4, width, value_width, device="cuda")
    return LinearAttentionState(key_value, None, torch.tensor([5, 7], device="cuda"))


def run(qkv, state=None, **keywords):
    """Output and state after; gradients of a loss over both."""
    leaves = [x.detach().requires_grad_() for x in qkv]
    if state is not None:
        leaves.append(state.key_value.to(_wide(qkv)).detach().clone().requires_grad_())
        keywords["initial_state"] = state._replace(key_value=leaves[3])
        keywords["return_state"] = True
    outputs = linear_attention(*leaves[:3], **keywords)
    if state is None:
        outputs = [outputs]
    else:
        outputs = [outputs[0], outputs[1].key_value]
    generator = torch.Generator("cuda").manual_seed(1)
    weights = [
        torch.randn(x.shape, device="cuda", generator=generator) for x in outputs
    ]
    # the same numbers for float64 as for the dtype under test
    loss = sum(
        (x * w.bfloat16().to(x.dtype)).sum()
        for x, w in zip(outputs, weights, strict=True)
    )
    gradients = torch.autograd.grad(loss, leaves)
    return [*(x.detach() for x in outputs), *gradients]


def _wide(qkv):
    return torch.float64 if qkv[0].dtype == torch.float64 else torch.float32


def check(qkv, **keywords):
    dtype = qkv[0].dtype
    computed = run(qkv, backend="triton", **keywords)
    peer = run(qkv, backend="torch", **keywords)
    exact = run([x.double() for x in qkv], backend="torch", **keywords)
    assert_as_good_as_torch(computed, peer, exact, slack_of(dtype, products=True))


@dtypes
@causalities
@pytest.mark.parametrize("length", [1, 17, 512, 1024, 1025, 5000])
def test_lengths_and_masks(length, causal, dtype):
    """NaN at a pad must not leak either."""
    mask = torch.rand(2, length, device="cuda") < 0.2
    mask[0] = False
    qkv = draw(length, dtype)
    keywords = {"causal": causal, "feature_map": "1+elu", "key_padding_mask": mask}
    check(qkv, **keywords)
    outputs = []
    for backend in ("triton", "torch"):
        poisoned = [x.clone() for x in qkv]
        for x in poisoned[1:]:
            x[mask] = torch.nan
        outputs.append(linear_attention(*poisoned, **keywords, backend=backend))
    assert relative_error(*outputs) < 2e-2


@dtypes
@causalities
@pytest.mark.parametrize(("width", "value_width"), [(32, 32), (128, 128), (128, 32)])
@pytest.mark.parametrize("length", [200, 1500])
def test_widths(length, width, value_width, causal, dtype):
    """The widest and the narrowest fit into registers and shared memory."""
    if length == 1500 and not causal:
        pytest.skip("the same kernels as for 200 tokens")
    check(draw(length, dtype, width, value_width), causal=causal)


def test_float32_without_tf32():
    """Asked for by name, since "auto" takes torch there."""
    torch.set_float32_matmul_precision("highest")
    qkv = draw(200, torch.float32)
    computed, peer, exact = (
        run(x, causal=True, backend=backend)
        for x, backend in (
            (qkv, "triton"),
            (qkv, "torch"),
            ([x.double() for x in qkv], "torch"),
        )
    )
    assert_as_good_as_torch(
        computed, peer, exact, slack_of(torch.float32, products=False)
    )


@dtypes
@pytest.mark.parametrize("length", [100, 1500])
def test_gradients_flow_through_states(length, dtype):
    check(draw(length, dtype), state=draw_state(), causal=True)


def test_many_sequences_in_one_segment():
    check(draw(1500, torch.bfloat16, batch=128), causal=True)


@dtypes
@torch.no_grad()
def test_prefill_and_steps_equal_one_call(dtype):
    qkv = draw(1100, dtype)
    exact = linear_attention(*(x.double() for x in qkv), causal=True, backend="torch")
    peer = linear_attention(*qkv, causal=True, backend="torch")
    outputs, state = [], None
    for part in zip(*(x.split([1090, *[1] * 10], 1) for x in qkv), strict=True):
        output, state = linear_attention(
            *part,
            causal=True,
            initial_state=state,
            return_state=True,
            backend="triton",
        )
        outputs.append(output)
    slack = slack_of(dtype, products=True)
    assert_as_good_as_torch([torch.cat(outputs, 1)], [peer], [exact], slack)
    assert state.length.tolist() == [1100, 1100]


@torch.no_grad()
def test_steps_in_a_cuda_graph():
    """Captured once, replayed: the state is updated in place."""
    qkv = draw(1, torch.bfloat16)
    state = draw_state()
    key_value = state.key_value
    update = torch.einsum("bnhd,bnhe->bhde", qkv[1].double(), qkv[2].double())

    def step():
        return linear_attention(
            *qkv, causal=True, initial_state=state, backend="triton"
        )

    # compiles the kernel, which cannot be captured
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step()
    start = key_value.double()
    for _ in range(3):
        graph.replay()
    assert relative_error(key_value, start + 3 * update) < 1e-5
    expected = torch.einsum("bnhd,bhde->bnhe", qkv[0].double(), key_value.double())
    assert relative_error(output, expected) < 1e-2


@dtypes
@causalities
@pytest.mark.parametrize("length", [512, 3000])
def test_a_second_run_gives_the_same_bits(length, causal, dtype):
    qkv = draw(length, dtype)
    assert_same_bits(*(run(qkv, causal=causal, backend="triton") for _ in range(2)))


@causalities
def test_more_elements_than_32_bits_count(causal):
    """The last row, head and tokens, forward and backward, lie behind element 2^31."""
    needs_memory(50)
    shape = (2, 1 << 18, 65, 64)
    one = [
        torch.randn(1, shape[1], 1, 64, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    ]
    query = one[0].expand(shape)
    key = one[1].expand(shape).contiguous().requires_grad_()
    value = one[2].expand(shape)
    assert key.numel() > 2**31
    output = linear_attention(query, key, value, causal=causal, backend="triton")
    # one number for all, so that the gradient takes no memory
    (gradient,) = torch.autograd.grad(output, key, output.new_ones(1).expand_as(output))
    one[1].requires_grad_()
    expected = linear_attention(*one, causal=causal, backend="torch")
    (wanted,) = torch.autograd.grad(expected, one[1], torch.ones_like(expected))
    assert relative_error(output[-1:, :, -1:], expected) < 1e-2
    assert relative_error(gradient[-1:, :, -1:], wanted) < 1e-2


def test_auto_takes_the_kernels(monkeypatch):
    monkeypatch.delenv("FAIRSEQ_TRANSNORMER_BACKEND", raising=False)
    qkv = draw(100, torch.bfloat16)
    auto, triton = (
        linear_attention(*qkv, causal=True, backend=backend)
        for backend in ("auto", "triton")
    )
    assert torch.equal(auto, triton)
