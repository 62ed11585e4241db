"""The output layer and its loss on a GPU, and a training step that never waits."""

import pytest
import torch

from fairseq_transnormer.modules import CausalLanguageModel, LanguageModelT2Config
from fairseq_transnormer.ops import linear_cross_entropy

pytestmark = pytest.mark.gpu
IGNORED = 1


def draw(tokens, vocabulary, width, dtype):
    x = torch.randn(tokens, width, device="cuda")
    weight = torch.randn(vocabulary, width, device="cuda") * 2 * width**-0.5
    targets = torch.randint(vocabulary, (tokens,), device="cuda")
    targets[::9] = IGNORED
    return [x.to(dtype), weight.to(dtype), targets]


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
