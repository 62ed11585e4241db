"""Model FLOPs against torch's counter, where it sees what the formulas count."""

import importlib

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fairseq_transnormer.modules import (
    EncoderT2Config,
    LanguageModelT1Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
)
from fairseq_transnormer.modules.layers import LayerStack
from fairseq_transnormer.modules.model_flops import (
    TRAINING_OVER_FORWARD,
    layer_flops,
    output_flops,
)

from .building import BLOCK, PAD, SMALL, VOCABULARY, draw_tokens, language_model

LENGTH = 4 * BLOCK
COUNTED = (
    "diag", "norm", "linear", "cosformer", "performer", "softmax", "flash_quad",
    "flash", "diag_then_norm", "diag_beside_norm",
)  # fmt: skip


def counted(call) -> int:
    # it does not see into torch's fused attention for the CPU
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def a_token(kind, tokens=LENGTH, causal=False, **changes):
    """FLOPs that torch counts, and ours, of a stack."""
    options = {"performer_features": 12, "relative_position": "none"} | changes
    config = EncoderT2Config(**(SMALL | options | {"attention_types": f"{kind}*2"}))
    stack = LayerStack(config, causal=causal).eval()
    x = torch.randn(2, tokens, config.embed_dim)
    with torch.no_grad():
        return counted(lambda: stack(x)) / (2 * tokens), layer_flops(stack, tokens)


@pytest.mark.parametrize("kind", COUNTED)
def test_forward_pass(kind, monkeypatch):
    # rope is lrpe without a reflection, whose product not all versions of torch count
    lrpe = importlib.import_module("fairseq_transnormer.ops.lrpe")
    monkeypatch.setattr(lrpe, "_reflect", lambda x, direction: x)
    found, ours = a_token(kind)
    assert ours == found


def test_blocks_that_are_longer_than_the_input():
    found, ours = a_token("diag", tokens=BLOCK // 2)
    assert ours == found


@pytest.mark.parametrize(
    "options", [{"linear_normalizer": "none"}, {"ffn_type": "ffn"}]
)
def test_options(options):
    found, ours = a_token("linear", **options)
    assert ours == found


@pytest.mark.parametrize("kind", ["diag", "softmax"])
def test_causal_scores_count_whole(kind):
    assert a_token(kind, causal=True) == a_token(kind)


@pytest.mark.parametrize("kind", ["norm", "linear", "flash"])
def test_causal_linear_attention_needs_no_less_however_it_is_computed(kind):
    found, ours = a_token(kind, causal=True)
    assert ours <= found and ours == a_token(kind)[1]


def test_training_costs_three_forward_passes():
    """ReLU blocks: torch's softmax kernel computes its scores again."""
    config = LanguageModelT1Config(**(SMALL | {"attention_types": "diag*2"}))
    stack = LayerStack(config, causal=False)
    x = torch.randn(2, LENGTH, config.embed_dim, requires_grad=True)
    found = counted(lambda: stack(x)[0].sum().backward())
    assert found == TRAINING_OVER_FORWARD * layer_flops(stack, LENGTH) * 2 * LENGTH


def test_output_layers():
    tokens = draw_tokens(2, LENGTH)
    model = language_model("t2")
    width = SMALL["embed_dim"]
    features = model.features(tokens)[0]
    found = counted(lambda: model.output(features)) / tokens.numel()
    assert output_flops(width, VOCABULARY, dense=False) == found

    encoder = MaskedLanguageModel(EncoderT2Config(**SMALL), VOCABULARY, PAD)
    masked = torch.zeros(2, LENGTH, dtype=torch.bool)
    masked[:, :8] = True
    whole = counted(lambda: encoder(tokens, masked))
    found = (whole - counted(lambda: encoder.features(tokens))) / tokens.numel()
    assert output_flops(width, VOCABULARY, dense=True, predicted=8 / LENGTH) == found


def test_the_papers_t2():
    """6 layers of 4 d^2 + 3 d 1365 weights, and the mixers; by hand."""
    with torch.device("meta"):
        stack = LayerStack(LanguageModelT2Config(), causal=True)
    weights = 6 * (4 * 512**2 + 3 * 512 * 1365)
    mixing = 3 * 4 * 64 * 512 + 3 * 4 * 64 * 512
    assert layer_flops(stack, 512) == 2 * weights + mixing
