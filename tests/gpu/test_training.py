"""Training with the kernels: torch.compile, autocast, checkpointing, DDP."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from fairseq_transnormer import ops
from fairseq_transnormer.modules import CausalLanguageModel, LanguageModelT2Config

from ..ops.drawing import relative_error
from .criterion import assert_same_bits

pytestmark = pytest.mark.gpu

WIDTH, HEADS = 64, 4
BACKEND = "triton"


def layer(x, theta):
    """Every op once, x: (B, N, H, D)."""
    reflection = x.new_ones(WIDTH) / WIDTH**0.5
    positions = torch.arange(x.shape[1], device=x.device)
    query, key = ops.lrpe(
        x, x, theta, reflection, positions, feature_map="1+elu", backend=BACKEND
    )
    y = ops.linear_attention(query, key, x, causal=True, backend=BACKEND)[0]
    y = ops.rms_norm(y.flatten(2), backend=BACKEND).view(x.shape)
    z = ops.block_attention(x, y, x, block_size=64, causal=True, backend=BACKEND)[0]
    z = z + ops.linear_attention(y, x, x, causal=False, backend=BACKEND)[0] / x.shape[1]
    return ops.gated_silu(z, y, backend=BACKEND)


def draw(dtype):
    x = torch.randn(2, 200, HEADS, WIDTH, device="cuda").to(dtype).requires_grad_()
    return x, torch.rand(WIDTH // 2, device="cuda", requires_grad=True)


def results(function, inputs):
    """The output and the gradients of its sum of squares."""
    output = function(*inputs)
    return [output, *torch.autograd.grad(output.float().square().sum(), inputs)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_compiled_graph_is_whole_and_right(dtype):
    """float16 mixes its dtype with the float32 of unscaled sums."""
    if dtype == torch.float16:

        def function(x, theta):
            y = ops.linear_attention(x, x, x, causal=True, backend=BACKEND)[0]
            return ops.rms_norm(y, backend=BACKEND) * theta.sum()

    else:
        function = layer
    inputs = draw(dtype)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True)
    for one, other in zip(
        results(compiled, inputs), results(function, inputs), strict=True
    ):
        assert one.isfinite().all()
        assert relative_error(one, other) < 2e-2


def test_checkpointing_gives_the_same_bits():
    inputs = draw(torch.bfloat16)
    again = results(lambda *x: checkpoint(layer, *x, use_reentrant=False), inputs)
    assert_same_bits(again, results(layer, inputs))


def build(backend):
    torch.manual_seed(0)
    config = LanguageModelT2Config(
        attention_types="diag,norm",
        embed_dim=128,
        num_heads=2,
        ffn_dim=128,
        dropout=0.0,
        attention_dropout=0.0,
        backend=backend,
    )
    return CausalLanguageModel(config, 50, 1).to("cuda")


def train(model, features, dtype):
    """A step's features and gradients, under autocast."""
    generator = torch.Generator("cuda").manual_seed(1)
    tokens = torch.randint(2, 50, (2, 150), device="cuda", generator=generator)
    with torch.autocast(tokens.device.type, dtype=dtype):
        output, _ = features(tokens)
        # no sum of squares, which the last norm keeps constant
        weight = torch.randn(output.shape, device="cuda", generator=generator)
        loss = (output.float() * weight).mean()
    loss.backward()
    gradients = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return output.detach(), gradients


def assert_close(one, other):
    assert relative_error(one[0], other[0]) < 3e-2
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        assert relative_error(gradient, other[1][name]) < 1e-1, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    ours, torchs = build(BACKEND), build("torch")
    assert_close(
        train(ours, ours.features, dtype), train(torchs, torchs.features, dtype)
    )


class Features(nn.Module):
    """What DDP calls."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model.features(tokens)


@pytest.fixture
def one_process(tmp_path):
    nccl = torch.cuda.is_available() and torch.distributed.is_nccl_available()
    torch.distributed.init_process_group(
        "nccl" if nccl else "gloo",
        init_method=f"file://{tmp_path}/store",
        rank=0,
        world_size=1,
    )
    yield
    torch.distributed.destroy_process_group()


def test_a_step_of_ddp(one_process):
    plain, wrapped = build(BACKEND), build(BACKEND)
    parallel = DistributedDataParallel(Features(wrapped), find_unused_parameters=True)
    expected = train(plain, plain.features, torch.bfloat16)
    assert_close(train(wrapped, parallel, torch.bfloat16), expected)
