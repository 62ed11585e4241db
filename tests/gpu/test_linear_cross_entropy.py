"""The output layer and its loss on a GPU, and a training step that never waits."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_transnormer.modules import CausalLanguageModel, LanguageModelT2Config
from fairseq_transnormer.ops import linear_cross_entropy
from fairseq_transnormer.ops.verification.trials import Slack

from .criterion import assert_as_good_as_torch, assert_same_bits

pytestmark = pytest.mark.gpu
IGNORED = 1


def draw(tokens, vocabulary, width, dtype):
    x = torch.randn(tokens, width, device="cuda")
    weight = torch.randn(vocabulary, width, device="cuda") * 2 * width**-0.5
    targets = torch.randint(vocabulary, (tokens,), device="cuda")
    targets[::9] = IGNORED
    return [x.to(dtype), weight.to(dtype), targets]


def results(x, weight, targets, backend):
    """The loss and both gradients, scaled as a loss scaler does."""
    leaves = [x.detach().requires_grad_(), weight.detach().requires_grad_()]
    if backend == "float64":
        wide = [each.double() for each in leaves]
        logits = F.linear(*wide)
        total = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    elif backend == "all logits":
        scores = F.log_softmax(F.linear(*leaves), -1, dtype=torch.float32)
        total = F.nll_loss(scores, targets, ignore_index=IGNORED, reduction="sum")
    else:
        total, _ = linear_cross_entropy(
            leaves[0], leaves[1], targets, ignore_index=IGNORED, backend=backend
        )
    return [total.detach(), *torch.autograd.grad(128 * total, leaves)]


@pytest.mark.parametrize("backend", ["torch", "triton", "auto"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str
)
@pytest.mark.parametrize(
    ("tokens", "vocabulary", "width"), [(700, 50_265, 64), (513, 4_097, 512)]
)
def test_as_the_loss_of_all_logits(tokens, vocabulary, width, dtype, backend):
    torch.manual_seed(0)
    inputs = draw(tokens, vocabulary, width, dtype)
    exact = results(*inputs, "float64")
    peer = results(*inputs, "all logits")
    found = results(*inputs, backend)
    assert_as_good_as_torch(found, peer, exact, Slack(1e-5, 1e-5))
    assert_same_bits(results(*inputs, backend), found)


def test_the_papers_vocabulary_needs_little_memory():
    """4,096 tokens: gradients, and 256 MB of logits at a time."""
    x, weight, targets = draw(4096, 267_744, 512, torch.bfloat16)
    weight.requires_grad_()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    linear_cross_entropy(x, weight, targets)[0].backward()
    held = torch.cuda.max_memory_allocated() - before
    of_weight = weight.numel() * (4 + 2)  # its sum in float32, and the gradient
    assert held < of_weight + 3 * 2**28


@pytest.mark.parametrize("padding", ["none", "right"])
def test_a_training_step_never_waits_for_the_device(padding):
    config = LanguageModelT2Config(attention_types="diag,norm")
    model = CausalLanguageModel(config, 5000).to("cuda", torch.bfloat16).train()
    tokens = torch.randint(4, 5000, (2, 256), device="cuda")
    if padding == "right":
        tokens[1, 200:] = 1
    targets = tokens.roll(-1, 1)
    for _ in range(2):  # kernels are compiled and tried in the first
        model(tokens, targets=targets, padding=padding)[0].backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        model(tokens, targets=targets, padding=padding)[0].backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
