"""Triton's linear attention on a GPU, against the equation in float64."""

import pytest
import torch

from fairseq_transnormer.ops import LinearAttentionState, linear_attention
from tests.ops.drawing import relative_error
from tests.triton_interpreter.poison import poisoned_memory  # noqa: F401

# Tensor cores take sums as bfloat16 or as TF32 (cut, not rounded) where torch
# multiplies in float32.
TOLERANCES = {torch.float32: 2e-3, torch.float16: 2e-3, torch.bfloat16: 1e-2}
dtypes = pytest.mark.parametrize("dtype", TOLERANCES)


@pytest.fixture(autouse=True)
def tf32(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)


def draw(length, dtype, width=64, value_width=64, batch=2):
    return [
        torch.randn(batch, length, 4, w, device="cuda").to(dtype)
        for w in (width, width, value_width)
    ]


def run(qkv, **keywords):
    """Output and gradients."""
    leaves = [x.detach().requires_grad_() for x in qkv]
    output = linear_attention(*leaves, **keywords)
    generator = torch.Generator("cuda").manual_seed(1)
    weight = torch.randn(output.shape, device="cuda", generator=generator)
    gradients = torch.autograd.grad((output * weight.to(output.dtype)).sum(), leaves)
    return [output.detach(), *gradients]


def check(qkv, **keywords):
    computed = run(qkv, backend="triton", **keywords)
    expected = run([x.double() for x in qkv], backend="torch", **keywords)
    for x, wanted in zip(computed, expected, strict=True):
        assert relative_error(x, wanted) < TOLERANCES[qkv[0].dtype]


@dtypes
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 17, 512, 1024, 1025, 5000])
def test_lengths(length, causal, dtype, poisoned_memory):  # noqa: F811
    mask = torch.rand(2, length, device="cuda") < 0.2
    check(
        draw(length, dtype), causal=causal, feature_map="1+elu", key_padding_mask=mask
    )


@dtypes
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("value_width", [32, 64, 128])
@pytest.mark.parametrize("length", [200, 1500])
def test_widths(length, width, value_width, causal, dtype):
    """Every combination fits into registers and shared memory, and is right."""
    check(draw(length, dtype, width, value_width), causal=causal)


@dtypes
def test_many_sequences_in_one_segment(dtype):
    check(draw(1500, dtype, batch=64), causal=True)


@dtypes
def test_prefill_then_steps(dtype):
    qkv = draw(1100, dtype)
    expected = linear_attention(
        *(x.double() for x in qkv), causal=True, backend="torch"
    )
    outputs, state = [], None
    with torch.no_grad():
        for part in zip(*(x.split([1090, *[1] * 10], 1) for x in qkv), strict=True):
            output, state = linear_attention(
                *part,
                causal=True,
                initial_state=state,
                return_state=True,
                backend="triton",
            )
            outputs.append(output)
    assert relative_error(torch.cat(outputs, 1), expected) < TOLERANCES[dtype]
    assert state.length.tolist() == [1100, 1100]


@torch.no_grad()
def test_steps_in_a_cuda_graph():
    qkv = draw(1, torch.bfloat16)
    key_value = torch.randn(2, 4, 64, 64, device="cuda")
    lengths = torch.zeros(2, dtype=torch.int64, device="cuda")
    state = LinearAttentionState(key_value, None, lengths)
    update = torch.einsum("bnhd,bnhe->bhde", qkv[1].double(), qkv[2].double())

    def step():
        return linear_attention(
            *qkv, causal=True, initial_state=state, backend="triton"
        )

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
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [512, 3000])
def test_the_same_inputs_give_the_same_bits(length, causal, dtype):
    qkv = draw(length, dtype)
    first, second = (run(qkv, causal=causal, backend="triton") for _ in range(2))
    for x, again in zip(first, second, strict=True):
        assert torch.equal(x, again)


@torch.no_grad()
@pytest.mark.parametrize("causal", [True, False])
def test_offsets_beyond_32_bits(causal):
    """The last row and the last tokens lie beyond 2^31 elements; 20 GB."""
    shape = (2, 1 << 18, 65, 64)
    if torch.cuda.mem_get_info()[0] < 5 * 2 * 2 * (1 << 18) * 65 * 64:
        pytest.skip("needs 21 GiB of free memory")
    query, key, value = (
        torch.randn(1, 1, 1, 64, device="cuda").bfloat16().expand(shape)
        for _ in range(3)
    )
    key = key.contiguous()
    assert key.numel() > 2**31
    output = linear_attention(query, key, value, causal=causal, backend="triton")
    one = [x[-1:, :, -1:].contiguous() for x in (query, key, value)]
    expected = linear_attention(*one, causal=causal, backend="torch")
    assert relative_error(output[-1:, :, -1:], expected) < 1e-2
