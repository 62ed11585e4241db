"""Dropout inside block attention's kernels: values, gradients, and what is dropped."""

import pytest
import torch

from fairseq_transnormer.ops import BlockAttentionState, backend, block_attention
from fairseq_transnormer.ops.block_attention import triton_impl as launcher
from fairseq_transnormer.ops.kernels.launch import shapes_only
from tests.messages import refuses

from .. import equations
from ..drawing import draw_mask, gradients, relative_error
from .tolerances import TOLERANCES, assert_near

pytestmark = pytest.mark.usefixtures("poisoned_memory")


ONE = {"batch": 1, "heads": 1}


def dropped(*qkv, seed=5, dropout_p=0.3, **options):
    torch.manual_seed(seed)
    return block_attention(*qkv, **options, dropout_p=dropout_p, backend="triton")[0]


def draw(length, *, batch=2, heads=2, width=32, value_width=32, dtype=torch.float32):
    widths = (width, width, value_width)
    return [torch.randn(batch, length, heads, w).to(dtype) for w in widths]


def factors_of(shape, block_size, **options):
    """(B, N, H, W): what all weights of (B, N, H) queries are multiplied by.

    All scores are 1 and no key is hidden, the values are unit vectors, 32 at a time. In
    a short last block there are fewer keys: what comes after them has no meaning.
    """
    ones = torch.ones(*shape, 32)
    index = torch.arange(shape[1]) % block_size
    parts = []
    for first in range(0, block_size, 32):
        units = torch.eye(max(block_size, first + 32))[index, first : first + 32]
        units = units[:, None].expand(*shape, 32)
        parts.append(
            dropped(
                *(ones, ones, units),
                **{"block_size": block_size, "causal": False, "scale": 1 / 32},
                **{"activation": "relu", **options},
            )
        )
    return torch.cat(parts, -1)[..., :block_size]


def check(qkv, tolerance, dropout_p=0.3, **options):
    """Output and gradients by the equation with the factors that were drawn."""
    shape, block_size = qkv[0].shape[:3], options["block_size"]
    factors = factors_of(shape, block_size, dropout_p=dropout_p)
    kept = factors > 0
    torch.testing.assert_close(factors, kept / (1 - dropout_p))
    # as a test of this test
    assert 0 < kept[:, :, :, 0].double().mean() < 1

    def op(*tensors):
        return dropped(*tensors, dropout_p=dropout_p, **options)

    def expected(*tensors):
        exact = kept.double() / (1 - dropout_p)
        return equations.block_attention(*tensors, factors=exact, **options)

    output, wide = op(*qkv), [x.double() for x in qkv]
    assert relative_error(output, expected(*wide)) < tolerance
    weight = torch.randn(output.shape)
    for gradient, wanted, x in zip(
        gradients(op, qkv, weight), gradients(expected, wide, weight), qkv, strict=True
    ):
        assert gradient.dtype == x.dtype
        assert relative_error(gradient, wanted) < tolerance


@pytest.mark.parametrize(
    ("sizes", "dtype", "form"),
    [
        ({"length": 40, "block_size": 32}, torch.bfloat16, (False, "softmax")),
        ({"length": 40, "block_size": 32}, torch.float16, (True, "relu")),
        ({"length": 9, "batch": 1, "heads": 1}, torch.float32, (True, "softmax")),
        ({"length": 50, "batch": 3, "heads": 1}, torch.float32, (False, "relu")),
        ({"length": 70, **ONE, "block_size": 64}, torch.float32, (True, "relu")),
        ({"length": 130, **ONE, "block_size": 128}, torch.float32, (False, "softmax")),
        ({"length": 40, **ONE, "dropout_p": 0.1}, torch.float32, (True, "softmax")),
        ({"length": 40, **ONE, "dropout_p": 0.97}, torch.float32, (True, "softmax")),
    ],
    ids=str,
)
def test_sizes_and_dtypes(sizes, dtype, form):
    sizes = {"block_size": 16, "dropout_p": 0.3, "batch": 2, "heads": 2} | sizes
    shape = {name: sizes.pop(name) for name in ("length", "batch", "heads")}
    causal, activation = form
    qkv = draw(shape.pop("length"), **shape, dtype=dtype)
    check(qkv, TOLERANCES[dtype], causal=causal, activation=activation, **sizes)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("causal", "activation"), [(False, "softmax"), (True, "relu")])
def test_masks_anywhere(transpose, causal, activation, monkeypatch):
    """With both ways in which the backward gets the transposed weights."""
    monkeypatch.setattr(launcher, "transposes_products", lambda _: transpose)
    mask = draw_mask(3, 40)
    mask[1, 16:32] = True
    options = {"block_size": 16, "causal": causal, "activation": activation}
    qkv = draw(40, batch=3, heads=1, value_width=64)
    check(qkv, 1e-5, key_padding_mask=mask, **options)


def test_tokens_after_a_state_are_dropped_too():
    query, key, value = draw(40)
    options = {"block_size": 16, "causal": True, "backend": "triton"}
    _, state = block_attention(
        *(x[:, :20] for x in (query, key, value)), **options, return_state=True
    )
    rest = [x[:, 20:] for x in (query, key, value)]
    options["initial_state"] = state
    one, same, other = (
        (torch.manual_seed(seed), block_attention(*rest, **options, dropout_p=0.5)[0])[
            1
        ]
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)


@pytest.mark.parametrize("dropout_p", [0.1, 0.5, 0.93])
def test_how_much_is_dropped_and_where(dropout_p):
    kept = factors_of((2, 96, 3), 32, dropout_p=dropout_p) > 0
    assert_near(kept, 1 - dropout_p)
    # every key has its share
    assert (kept.double().mean((0, 1, 2)) - (1 - dropout_p)).abs().max() < 0.15
    # keys, queries, blocks, heads and rows of the batch are independent
    alike = dropout_p**2 + (1 - dropout_p) ** 2
    neighbours = (3, 1), (3, 2), (3, 3), (3, 4), (1, 1), (1, 32), (2, 1), (0, 1)
    for dim, distance in neighbours:
        length = kept.shape[dim] - distance
        one, other = kept.narrow(dim, 0, length), kept.narrow(dim, distance, length)
        assert_near(one == other, alike)


def test_seeds_decide_what_is_dropped():
    one, again, other = (
        factors_of((2, 64, 2), 32, dropout_p=0.5, seed=seed) > 0 for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert_near(one == other, 0.5)
    qkv, options = draw(40), {"block_size": 16, "causal": True, "backend": "triton"}
    torch.manual_seed(1)
    first, second = (
        block_attention(*qkv, **options, dropout_p=0.5)[0] for _ in range(2)
    )
    assert not torch.equal(first, second)


def test_nothing_is_drawn_without_dropout():
    qkv, options = draw(40), {"block_size": 16, "causal": True}
    before = torch.get_rng_state()
    for _ in range(2):
        block_attention(*qkv, **options, dropout_p=0.0, backend="triton")
    assert torch.equal(before, torch.get_rng_state())


def test_nothing_is_kept_but_the_inputs():
    qkv = [x.requires_grad_() for x in draw(40)]
    saved = []
    hooks = torch.autograd.graph.saved_tensors_hooks(saved.append, lambda x: x)
    with hooks:
        dropped(*qkv, block_size=16, causal=True)
    assert {x.data_ptr() for x in saved if x is not None} == {x.data_ptr() for x in qkv}


@pytest.fixture
def launched(monkeypatch):
    """Names of kernels; every trial is taken to have passed."""
    monkeypatch.setattr(backend, "INTERPRETER_IS_A_DEVICE", True)
    monkeypatch.setattr(backend, "_why_kernels_are_avoided", lambda *_: None)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    names, launch = [], launcher.launch

    def watched(kernel, *arguments, **keywords):
        names.append(kernel.fn.__name__)
        return launch(kernel, *arguments, **keywords)

    monkeypatch.setattr(launcher, "launch", watched)
    yield names
    torch.set_float32_matmul_precision(before)


OPTIONS = {"block_size": 16, "causal": True, "dropout_p": 0.5}


def test_torch_compile_takes_torchs_ops(launched):
    torch._dynamo.reset()
    qkv = draw(40)

    def function(*tensors):
        return block_attention(*tensors, **OPTIONS)[0]

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    first, second = (compiled(*qkv) for _ in range(2))
    assert launched == [] and not torch.equal(first, second)
    function(*qkv)
    assert launched == ["block_attention_forward"]


def test_a_captured_graph_takes_torchs_ops(launched, monkeypatch):
    """A seed would be the same in each replay."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, p: 0 * x)
    qkv = draw(40)
    assert (block_attention(*qkv, **OPTIONS)[0] == 0).all() and launched == []
    with refuses(ValueError, "backend='triton'", "dropout_p=0.5", "graph"):
        block_attention(*qkv, **OPTIONS, backend="triton")


@torch.no_grad()
def test_a_step_with_dropout_is_torchs(launched):
    cache = (torch.randn(2, 16, 2, 32) for _ in "kv")
    state = BlockAttentionState(*cache, torch.tensor([5, 7]))
    block_attention(*draw(1), **OPTIONS, initial_state=state)
    assert launched == []
    with refuses(ValueError, "backend='triton'", "dropout_p=0.5", "step"):
        block_attention(*draw(1), **OPTIONS, initial_state=state, backend="triton")


def test_one_launch_each():
    qkv = [torch.randn(2, 40, 2, 32).requires_grad_() for _ in "qkv"]
    names = []
    with shapes_only(lambda kernel, arguments: names.append(kernel.__name__)):
        output, _ = block_attention(*qkv, **OPTIONS, backend="triton")
        output.backward(torch.randn_like(output))
    assert names == ["block_attention_forward", "block_attention_backward"]
