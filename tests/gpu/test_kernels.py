"""The kernels on a GPU, beside their laws: graphs, dropout, the largest tensors."""

import pytest
import torch

from fairseq_transnormer import ops
from fairseq_transnormer.ops import (
    LinearAttentionState,
    block_attention,
    linear_attention,
)
from fairseq_transnormer.ops.trials import largest_error

from ..ops.drawing import relative_error
from ..ops.interpreter.poison import poisoned_memory  # noqa: F401
from .criterion import dtypes, needs_memory, tf32  # noqa: F401

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poisoned_memory", "tf32")]

activations = pytest.mark.parametrize("activation", ["softmax", "relu"])
causalities = pytest.mark.parametrize("causal", [False, True])


def draw(length, heads=4):
    """T x B x C in memory, as fairseq has it."""
    shape = (length, 2, heads, 64)
    return [torch.randn(shape, device="cuda").bfloat16().transpose(0, 1) for _ in "qkv"]


@torch.no_grad()
def test_steps_of_linear_attention_in_a_cuda_graph():
    """Captured once, replayed: the state is updated in place."""
    qkv = draw(1)
    key_value = torch.randn(2, 4, 64, 64, device="cuda")
    lengths = torch.tensor([5, 7], device="cuda")
    state = LinearAttentionState(key_value, None, lengths)
    update = torch.einsum("bnhd,bnhe->bhde", qkv[1].double(), qkv[2].double())

    def step():
        return linear_attention(
            *qkv, causal=True, initial_state=state, backend="triton"
        )[0]

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


@activations
@torch.no_grad()
def test_a_graph_of_one_step_generates(activation):
    """Captured once, replayed for each token across the border of a block."""
    qkv = draw(100)
    options = {"block_size": 64, "causal": True, "activation": activation}
    options["backend"] = "triton"
    expected = block_attention(*qkv, **options)[0]

    def prefill():
        part = [x[:, :50] for x in qkv]
        return block_attention(*part, **options, return_state=True)[1]

    token = [x[:, :1].clone() for x in qkv]
    # compiles the kernel, which cannot be captured
    block_attention(*token, **options, initial_state=prefill())
    state = prefill()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output, after = block_attention(
            *token, **options, initial_state=state, return_state=True
        )
        state.length.copy_(after.length)
    for i in range(50, 100):
        for static, x in zip(token, qkv, strict=True):
            static.copy_(x[:, i : i + 1])
        graph.replay()
        assert relative_error(output, expected[:, i : i + 1]) < 1e-2
    assert state.length.tolist() == [100] * 2


@activations
@causalities
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("block_size", "width", "masked"),
    [(64, 64, True), (64, 128, False), (128, 32, False)],
)
def test_dropout(block_size, width, masked, dtype, causal, activation):
    """By the trial: values, gradients, how much, and what other seeds drop."""
    options = {"block_size": block_size, "width": width, "value_width": width}
    options |= {"causal": causal, "activation": activation, "form": "blocks"}
    options |= {"padded": masked, "dropout": True, "aligned": True}
    largest_error("block_attention", dtype, torch.device("cuda"), options)


@dtypes
def test_a_dropped_part(dtype):
    """How much, how the rest grows, and the same in the backward pass."""
    x, y = (torch.ones(64, 100, 512, device="cuda", dtype=dtype) for _ in "xy")
    y.requires_grad_()
    torch.manual_seed(1)
    total, _ = ops.dropout_add_norm(x, y, dropout_p=0.25, backend="triton")
    kept = total > 1
    assert abs(kept.double().mean().item() - 0.75) < 2e-3
    assert ((total[kept].double() - 1 - 1 / 0.75).abs() < 1e-2).all()
    total.sum().backward()
    assert torch.equal(y.grad > 0, kept)
    torch.manual_seed(1)
    again, _ = ops.dropout_add_norm(x, y, dropout_p=0.25, backend="triton")
    assert torch.equal(again, total)


@causalities
def test_linear_attention_of_more_elements_than_32_bits_count(causal):
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
    output = linear_attention(query, key, value, causal=causal, backend="triton")[0]
    # one number for all, so that the gradient takes no memory
    (gradient,) = torch.autograd.grad(output, key, output.new_ones(1).expand_as(output))
    one[1].requires_grad_()
    expected = linear_attention(*one, causal=causal, backend="torch")[0]
    (wanted,) = torch.autograd.grad(expected, one[1], torch.ones_like(expected))
    assert relative_error(output[-1:, :, -1:], expected) < 1e-2
    assert relative_error(gradient[-1:, :, -1:], wanted) < 1e-2


@causalities
def test_block_attention_of_more_elements_than_32_bits_count(causal):
    """The last block, behind element 2^31, is that of a call of its own."""
    needs_memory(40)
    length, heads, width = 2**20 + 64, 32, 64
    x = torch.empty(
        1, length, heads, width, dtype=torch.bfloat16, device="cuda"
    ).normal_()
    assert x.numel() > 2**31
    x.requires_grad_()
    options = {"block_size": 64, "causal": causal, "backend": "triton"}
    output = block_attention(x, x, x, **options)[0]
    (gradient,) = torch.autograd.grad(output, x, output.detach())
    last = x[:, -64:].detach().requires_grad_()
    expected = block_attention(last, last, last, **options)[0]
    (wanted,) = torch.autograd.grad(expected, last, expected.detach())
    assert torch.equal(output[:, -64:], expected)
    assert torch.equal(gradient[:, -64:], wanted)
    assert output[:, :1024].isfinite().all()


@pytest.mark.parametrize(
    ("op", "gib"), [("rms_norm", 14), ("gated_silu", 18), ("lrpe", 22)]
)
def test_rows_of_more_elements_than_32_bits_count(op, gib):
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
