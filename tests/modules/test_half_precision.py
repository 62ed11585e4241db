"""float16 and bfloat16 train without NaN and stay near float32.

The paper's length and head width; few heads, two layers and a small vocabulary, since
float16 is slow on a CPU.
"""

import copy

import pytest
import torch

from fairseq_transnormer.modules import CausalLanguageModel, MaskedLanguageModel
from tests.ops.drawing import relative_error

from .building import (
    CAUSAL_CONFIGS,
    ENCODER_CONFIGS,
    PAD,
    VOCABULARY,
    draw_tokens,
    features_of,
)

HALVES = ("causal", "t1", torch.float16), ("causal", "t2", torch.bfloat16)
HALVES += (
    ("bidirectional", "t1", torch.bfloat16),
    ("bidirectional", "t2", torch.float16),
)
pairs = pytest.mark.parametrize(("family", "variant", "dtype"), HALVES)
LENGTH = 512
# bfloat16 keeps 8 bits and float16 11; errors add up over the layers
FEATURE_ERROR = {torch.float16: 0.01, torch.bfloat16: 0.06}
# T1 divides by the RMS of ReLU sums, which may be next to zero: gradients there hang on
# the last bits of the scores
GRADIENT_ERROR = {
    ("t1", torch.float16): 0.08,
    ("t1", torch.bfloat16): 0.6,
    ("t2", torch.float16): 0.01,
    ("t2", torch.bfloat16): 0.06,
}


def build(family, variant):
    small = {
        "attention_types": "diag,norm",
        "embed_dim": 128,
        "num_heads": 2,
        "ffn_dim": 128,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
    if family == "causal":
        config = CAUSAL_CONFIGS[variant](**small)
        return CausalLanguageModel(config, VOCABULARY, PAD)
    config = ENCODER_CONFIGS[variant](**small)
    return MaskedLanguageModel(config, VOCABULARY, PAD)


def gradients_of(model, scale=1):
    return {
        name: parameter.grad.float() / scale
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def features_and_gradients(model, tokens, weight):
    features = features_of(model, tokens)
    # a mean, as a loss is, times the scale that half-precision training starts with
    scale = 128 if features.dtype == torch.float16 else 1
    (scale * (features.float() * weight).mean()).backward()
    return features.float().detach(), gradients_of(model, scale)


def check_gradients(gradients, expected, allowed):
    assert gradients.keys() == expected.keys()
    largest = max(wanted.norm() for wanted in expected.values())
    for name, wanted in expected.items():
        assert gradients[name].isfinite().all(), name
        # the gradient of k_proj.bias is zero under a softmax: nothing to compare
        if wanted.norm() > 1e-3 * largest:
            assert relative_error(gradients[name], wanted) < allowed, name


@pairs
def test_forward_and_backward_at_512_tokens(family, variant, dtype):
    model = build(family, variant)
    tokens = draw_tokens(2, LENGTH)
    tokens[1, 300:] = PAD
    real = tokens != PAD
    weight = torch.randn(2, LENGTH, model.stack.layers[0].attention.embed_dim)
    weight *= real[..., None]
    half = copy.deepcopy(model).to(dtype)
    expected, wide_gradients = features_and_gradients(model, tokens, weight)
    features, gradients = features_and_gradients(half, tokens, weight)
    assert features.isfinite().all()
    assert relative_error(features[real], expected[real]) < FEATURE_ERROR[dtype]
    check_gradients(gradients, wide_gradients, GRADIENT_ERROR[variant, dtype])


@pytest.mark.parametrize(
    ("family", "variant"), [("causal", "t2"), ("bidirectional", "t1")]
)
def test_autocast_to_bfloat16(family, variant):
    model = build(family, variant)
    tokens = draw_tokens(1, LENGTH)
    weight = torch.randn(1, LENGTH, model.stack.layers[0].attention.embed_dim)
    expected, wide_gradients = features_and_gradients(model, tokens, weight)
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = features_of(model, tokens)
    (features.float() * weight).mean().backward()
    assert relative_error(features.float(), expected) < FEATURE_ERROR[torch.bfloat16]
    allowed = GRADIENT_ERROR[variant, torch.bfloat16]
    check_gradients(gradients_of(model), wide_gradients, allowed)
