"""Each baseline against its paper's defining equation, written naively in float64."""

import math

import pytest
import torch

from fairseq_transnormer.modules import ATTENTIONS, EncoderConfig
from fairseq_transnormer.modules import LanguageModelConfig as Config
from fairseq_transnormer.modules.baselines import performer
from fairseq_transnormer.modules.baselines.performer import RandomFeatures
from fairseq_transnormer.modules.layers import LayerStack
from tests.messages import refuses

from .attentions import HEAD, build, check, draw

LENGTH = 11
causality = pytest.mark.parametrize("causal", [False, True])


def check_scores(layer, scores, divide=True):
    """``scores``: of q and k of a row, as a system defines them -> (H, N, N)."""

    def equation(q, k, v):
        weights = scores(q, k)
        if layer.causal:
            weights = weights.tril()
        if divide:
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-6)
        return weights @ v

    check(layer, equation, LENGTH, rtol=1e-6, atol=1e-6)


@causality
@torch.no_grad()
def test_softmax(causal):
    def scores(q, k):
        return (q @ k.mT / math.sqrt(HEAD)).exp()

    check_scores(build("softmax", causal), scores)


@causality
@pytest.mark.parametrize("normalizer", ["sum", "none"])
@torch.no_grad()
def test_one_plus_elu(normalizer, causal):
    def phi(x):
        return torch.where(x > 0, x + 1, x.exp())

    check_scores(
        build("linear", causal, linear_normalizer=normalizer),
        lambda q, k: phi(q) @ phi(k).mT,
        divide=normalizer == "sum",
    )


@pytest.mark.parametrize(
    ("causal", "length"), [(True, 11), (True, 40), (False, 11), (False, 40), (False, 0)]
)
@torch.no_grad()
def test_cosformer(length, causal):
    """The explicit matrix of cos(pi / 2 (i - j) / m)."""

    def scores(q, k):
        m = length or LENGTH
        distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        return q.relu() @ k.relu().mT * (math.pi / 2 * distance / m).cos()

    check_scores(build("cosformer", causal, cosformer_length=length), scores)


@torch.no_grad()
def test_cosformers_length_is_of_tokens_not_of_pads():
    layer, x = build("cosformer", True, cosformer_length=8), draw(11)
    pads = torch.arange(11) >= torch.tensor([[7], [4]])
    output, state = layer(x, pads, return_state=True)
    torch.testing.assert_close(output[0, :7], layer(x[:1, :7])[0][0])
    # one row has ended
    pads = torch.tensor([[False, True], [True, True]])
    output, state = layer(x[:, 7:9], pads, state, return_state=True)
    torch.testing.assert_close(output[0, 0], layer(x[:1, :8])[0][0, 7])
    with refuses(ValueError, "cosformer_length=8", 9):
        layer(x[:, 8:9], None, state)


def test_the_longest_input_is_what_all_layers_take():
    lengths = {"cosformer_length": 8, "linformer_length": 6}
    for types in ("cosformer,linformer,norm", "norm,linformer,cosformer"):
        config = EncoderConfig(attention_types=types, **lengths)
        assert LayerStack(config, causal=False).longest_input == 6


@causality
@pytest.mark.parametrize("num_features", [5, 64])
@torch.no_grad()
def test_performers_features(num_features, causal):
    layer = build("performer", causal, performer_features=num_features)

    def scores(q, k):
        w, root = layer.features.directions, HEAD**0.25

        def exponents(x):
            x = x / root
            return x @ w.T - (x * x).sum(-1, keepdim=True) / 2

        q, k = exponents(q), exponents(k)
        q = q - q.amax(-1, keepdim=True)
        if not causal:
            k = k - k.amax((1, 2), keepdim=True)
        q, k = (x.exp() / math.sqrt(num_features) + 1e-4 for x in (q, k))
        return q @ k.mT

    check_scores(layer, scores)


@causality
@torch.no_grad()
def test_performer_converges_to_softmax_attention(causal, monkeypatch):
    """The error falls with the square root of the number of features."""
    monkeypatch.setattr(performer, "SMALLEST_FEATURE", 0.0)
    softmax = build("softmax", causal)
    # long queries and keys would need many more features
    softmax.initialise()
    x = 0.4 * draw(LENGTH)
    expected, errors = softmax(x)[0], []
    for num_features in (64, 64 * 64):
        layer = build("performer", causal, performer_features=num_features)
        layer.load_state_dict(softmax.state_dict(), strict=False)
        found = []
        for seed in range(8):
            layer.features.draw(torch.Generator().manual_seed(seed))
            found.append((layer(x)[0] - expected).norm() / expected.norm())
        errors.append(torch.stack(found).mean().item())
    assert errors[1] < 0.01 and 5 < errors[0] / errors[1] < 13


@torch.no_grad()
def test_performers_directions():
    features = RandomFeatures(8, 20)
    w = features.directions
    for block in (w[:8], w[8:16], w[16:]):
        products = block @ block.T
        assert (products - products.diagonal().diag()).abs().max() < 1e-4
    many = RandomFeatures(8, 80_000).directions
    # as long as normal vectors, in all directions alike
    lengths = many.square().sum(-1)
    assert abs(lengths.mean() - 8) < 0.1 and abs(lengths.var() - 16) < 0.8
    assert many.mean(0).abs().max() < 0.02
    assert (many.T @ many / len(many) - torch.eye(8)).abs().max() < 0.03


@torch.no_grad()
def test_performers_causal_exponents_stay_in_float32():
    """Keys as long as the longest direction, in a wide head; others are as they are."""
    config = Config(embed_dim=256, num_heads=1)
    layer = ATTENTIONS["performer"](config, causal=True).eval()
    w = layer.features.directions
    x = torch.randn(1, 9, 1, 256)
    near = x / 256**0.25
    exact = (near @ w.T - near.square().sum(-1, keepdim=True) / 2).exp() / 8 + 1e-4
    torch.testing.assert_close(layer.features(x, x, None, causal=True)[1], exact)
    assert exact.amax() > 0.01
    key = 256**0.25 * w[w.norm(dim=1).argmax()].expand(1, 512, 1, -1)
    query, features = layer.features(key, key, None, causal=True)
    assert features.isfinite().all() and features.sum() < 1e32
    assert query.max() <= 1
