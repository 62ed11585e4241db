"""Block attention's kernels on a GPU: against float64, and as good as torch's."""

import pytest
import torch

from fairseq_transnormer.ops import block_attention
from fairseq_transnormer.ops.verification.trials import largest_error, slack_of

from ..ops.drawing import gradients, relative_error
from ..ops.interpreter.poison import poisoned_memory  # noqa: F401
from .criterion import (
    assert_as_good_as_torch,
    assert_same_bits,
    dtypes,
    needs_memory,
    tf32,  # noqa: F401
)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poisoned_memory", "tf32")]

activations = pytest.mark.parametrize("activation", ["softmax", "relu"])
causalities = pytest.mark.parametrize("causal", [False, True])


def draw(length, width=64, batch=3, heads=4, dtype=torch.bfloat16):
    """T x B x C in memory, as fairseq has it."""
    shape = (length, batch, heads, width)
    return [
        torch.randn(shape, device="cuda").to(dtype).transpose(0, 1) for _ in range(3)
    ]


def results(backend, qkv, weight, **options):
    """The output and the gradients of sum(weight * output)."""

    def function(*tensors):
        return block_attention(*tensors, **options, backend=backend)

    return [function(*qkv), *gradients(function, qkv, weight)]


def slack(dtype, activation):
    """float16's weights of ReLU have no bound, so its products are in TF32."""
    cut = dtype == torch.float32 or (dtype, activation) == (torch.float16, "relu")
    return slack_of(dtype, products=cut)


def check(length, block_size, width, dtype, causal, activation, masked):
    qkv = draw(length, width, dtype=dtype)
    options = {"block_size": block_size, "causal": causal, "activation": activation}
    if masked:
        mask = torch.rand(3, length, device="cuda") < 0.3
        mask[1, :block_size] = True
        options["key_padding_mask"] = mask
        # what stands at a pad must not leak
        for x in qkv[1:]:
            x[mask] = torch.nan
    weight = torch.randn(3, length, 4, width, device="cuda").to(dtype)
    # TF32 may be too wrong for float32, where torch is exact: then "auto" takes torch
    backend = "auto" if dtype == torch.float32 else "triton"
    computed = results(backend, qkv, weight, **options)
    peer = results("torch", qkv, weight, **options)
    exact = results("torch", [x.double() for x in qkv], weight, **options)
    assert_as_good_as_torch(computed, peer, exact, slack(dtype, activation))


@activations
@causalities
@dtypes
@pytest.mark.parametrize("masked", [False, True])
def test_the_papers_blocks(masked, dtype, causal, activation):
    check(300, 64, 64, dtype, causal, activation, masked)


@dtypes
@pytest.mark.parametrize(
    ("length", "block_size", "width", "causal", "activation", "masked"),
    [
        (1, 64, 64, True, "softmax", False),
        (300, 32, 32, True, "softmax", False),
        (300, 32, 32, False, "relu", True),
        (50, 16, 128, False, "softmax", True),
        (50, 16, 128, True, "relu", False),
        (200, 128, 32, True, "relu", True),
        (200, 128, 64, False, "softmax", False),
        (130, 64, 128, True, "softmax", True),
    ],
)
def test_other_blocks(length, block_size, width, causal, activation, masked, dtype):
    check(length, block_size, width, dtype, causal, activation, masked)


@activations
def test_float32_without_tf32(activation):
    torch.set_float32_matmul_precision("highest")
    qkv = draw(130, dtype=torch.float32)
    weight = torch.randn(3, 130, 4, 64, device="cuda")
    options = {"block_size": 64, "causal": True, "activation": activation}
    assert_as_good_as_torch(
        results("triton", qkv, weight, **options),
        results("torch", qkv, weight, **options),
        results("torch", [x.double() for x in qkv], weight, **options),
        slack_of(torch.float32, products=False),
    )


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


@activations
@causalities
@dtypes
def test_a_second_run_gives_the_same_bits(dtype, causal, activation):
    qkv = draw(300, dtype=dtype)
    weight = torch.randn(3, 300, 4, 64, device="cuda").to(dtype)
    options = {"block_size": 64, "causal": causal, "activation": activation}
    assert_same_bits(*(results("triton", qkv, weight, **options) for _ in range(2)))


@activations
@dtypes
@torch.no_grad()
def test_prefill_and_steps_equal_one_call(dtype, activation):
    qkv = draw(150, dtype=dtype)
    options = {"block_size": 64, "causal": True, "activation": activation}
    outputs, state = [], None
    for part in zip(*(x.split([50, 20, *[1] * 80], 1) for x in qkv), strict=True):
        output, state = block_attention(
            *part, **options, initial_state=state, return_state=True, backend="triton"
        )
        outputs.append(output)
    exact = block_attention(*(x.double() for x in qkv), **options)
    peer = block_attention(*qkv, **options, backend="torch")
    computed = torch.cat(outputs, 1)
    assert_as_good_as_torch([computed], [peer], [exact], slack(dtype, activation))
    assert state.length.tolist() == [150] * 3


@activations
@torch.no_grad()
def test_a_graph_of_one_step_generates(activation):
    """Captured once, replayed for each token across the border of a block."""
    qkv = draw(100)
    options = {"block_size": 64, "causal": True, "activation": activation}
    options["backend"] = "triton"
    expected = block_attention(*qkv, **options)

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
    assert state.length.tolist() == [100] * 3


@causalities
def test_more_elements_than_32_bits_count(causal):
    """The last block, behind element 2^31, is that of a call of its own."""
    needs_memory(40)
    length, heads, width = 2**20 + 64, 32, 64
    x = torch.empty(
        1, length, heads, width, dtype=torch.bfloat16, device="cuda"
    ).normal_()
    assert x.numel() > 2**31
    x.requires_grad_()
    options = {"block_size": 64, "causal": causal, "backend": "triton"}
    output = block_attention(x, x, x, **options)
    (gradient,) = torch.autograd.grad(output, x, output.detach())
    last = x[:, -64:].detach().requires_grad_()
    expected = block_attention(last, last, last, **options)
    (wanted,) = torch.autograd.grad(expected, last, expected.detach())
    assert torch.equal(output[:, -64:], expected)
    assert torch.equal(gradient[:, -64:], wanted)
    assert output[:, :1024].isfinite().all()


def test_auto_takes_the_kernels(monkeypatch):
    monkeypatch.delenv("FAIRSEQ_TRANSNORMER_BACKEND", raising=False)
    qkv = draw(100)
    options = {"block_size": 64, "causal": True}
    auto, triton = (
        block_attention(*qkv, **options, backend=backend)
        for backend in ("auto", "triton")
    )
    assert torch.equal(auto, triton)
