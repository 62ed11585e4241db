"""Attentions with weights that leave nothing alike, and their equations of one row."""

import math

import torch

from fairseq_transnormer.modules import ATTENTIONS, EncoderConfig

WIDTH, HEADS = 16, 2
HEAD = WIDTH // HEADS
ENCODERS = (
    "bigbird",
    "informer",
    "kernelized",
    "linformer",
    "nystromformer",
    "reformer",
    "skyformer",
)


def build(name, causal=False, **changes):
    config = EncoderConfig(embed_dim=WIDTH, num_heads=HEADS, **changes)
    layer = ATTENTIONS[name](config, causal=causal).double().eval()
    # as they start, queries and keys are so short that all weights are alike
    torch.nn.init.normal_(layer.q_proj.weight, std=0.5)
    torch.nn.init.normal_(layer.k_proj.weight, std=0.5)
    return layer


def draw(length, rows=2):
    return torch.randn(rows, length, WIDTH, dtype=torch.float64)


def heads(layer, x):
    """Query, key and value of one row, (H, N, D) each."""
    return (
        p(x).unflatten(-1, (HEADS, HEAD)).transpose(0, 1)
        for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )


def joined(layer, o):
    """The output of (H, N, D)."""
    return layer.out_proj(o.transpose(0, 1).flatten(1))


def softmax(q, k, visible=None):
    scores = q @ k.transpose(-1, -2) / math.sqrt(HEAD)
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    return scores.softmax(-1)


def check(layer, equation, length, **tolerance):
    """``equation``: q, k, v of a row -> (H, N, D)."""
    x = draw(length)
    rows = [joined(layer, equation(*heads(layer, row))) for row in x]
    torch.testing.assert_close(layer(x)[0], torch.stack(rows), **tolerance)


def vanilla(q, k, v):
    return softmax(q, k) @ v
