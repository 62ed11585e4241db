"""DiagAttention, NormAttention and whole models against the specification's card."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.ops import equations

from .building import (
    BLOCK,
    PAD,
    draw_tokens,
    language_model,
    masked_language_model,
    token_mixer,
    variants,
)


def heads(x, count):
    return x.unflatten(-1, (count, -1))


def lrpe(module, x, positions):
    """x (B, N, H, D)."""
    matrices = [
        equations.lrpe_matrix(p, module.theta, module.reflection) for p in positions
    ]
    return torch.einsum("nij,bnhj->bnhi", torch.stack(matrices), x)


def norm(x):
    return equations.rms_norm(x, eps=1e-8)


def diag_attention(layer, x, variant, causal):
    q, k, v = (
        heads(p(x), layer.num_heads) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    inside = [n % BLOCK for n in range(x.shape[1])]
    o = equations.block_attention(
        lrpe(layer.lrpe, q, inside) / math.sqrt(layer.head_dim),
        lrpe(layer.lrpe, k, inside),
        v,
        block_size=BLOCK,
        causal=causal,
        activation="relu" if variant == "t1" else "softmax",
        scale=1.0,
    ).flatten(2)
    return layer.out_proj(norm(o) if variant == "t1" else o)


def norm_attention(layer, x, variant, causal):
    q, k, v = (
        heads(p(x), layer.num_heads) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    one = 0 if variant == "t1" else 1
    positions = range(x.shape[1])
    q, k = (
        lrpe(layer.lrpe, one + torch.where(t > 0, t, t.exp() - 1), positions)
        for t in (q, k)
    )
    o = equations.linear_attention(q, k, v, causal=causal).flatten(2)
    return layer.out_proj(norm(o))


ATTENTIONS = {"diag": diag_attention, "norm": norm_attention}


@variants
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ATTENTIONS)
@torch.no_grad()
def test_attention(name, causal, variant):
    layer = token_mixer(name, variant, causal=causal)
    x = torch.randn(2, 3 * BLOCK - 3, 16, dtype=torch.float64)
    expected = ATTENTIONS[name](layer, x, variant, causal)
    torch.testing.assert_close(layer(x)[0], expected, rtol=1e-6, atol=1e-6)


def mixers(layer, x, variant, causal):
    def attend(y):
        name = "diag" if hasattr(layer.attention, "block_size") else "norm"
        return ATTENTIONS[name](layer.attention, y, variant, causal)

    def glu(y):
        mixer = layer.feed_forward
        gate = F.silu(mixer.gate_proj(y))
        return mixer.out_proj(gate * mixer.value_proj(y))

    return attend, glu


@variants
@torch.no_grad()
def test_causal_model(variant):
    model = language_model(variant)
    tokens = draw_tokens(2, 2 * BLOCK + 3)
    angles = torch.arange(PAD + 1, PAD + 1 + tokens.shape[1], dtype=torch.float64)
    angles = angles[:, None] / 10000 ** (torch.arange(8, dtype=torch.float64) / 7)
    sinusoids = torch.cat((angles.sin(), angles.cos()), -1)
    x = math.sqrt(16) * model.embed_tokens.weight[tokens] + sinusoids
    for layer in model.stack.layers:
        for part in mixers(layer, x, variant, True):
            x = x + part(norm(x))
    expected = norm(x) @ model.embed_tokens.weight.T
    torch.testing.assert_close(model(tokens), expected, rtol=1e-5, atol=1e-5)


@variants
@torch.no_grad()
def test_bidirectional_model(variant):
    model = masked_language_model(variant)
    tokens = draw_tokens(2, 2 * BLOCK + 3)
    positions = torch.arange(tokens.shape[1]) + PAD + 1
    x = model.embed_tokens.weight[tokens] + model.embed_positions.weight[positions]
    x = F.layer_norm(x, (16,), model.embed_norm.weight, model.embed_norm.bias)
    for layer in model.stack.layers:
        for part in mixers(layer, x, variant, False):
            x = norm(x + part(x))
    torch.testing.assert_close(model.features(tokens), x, rtol=1e-5, atol=1e-5)
