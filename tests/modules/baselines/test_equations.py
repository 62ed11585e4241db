"""Each baseline against its paper's defining equation, written naively in float64."""

import math

import pytest
import torch

from fairseq_transnormer.modules import ATTENTIONS, EncoderConfig
from fairseq_transnormer.modules import LanguageModelConfig as Config
from fairseq_transnormer.modules.baselines import performer
from fairseq_transnormer.modules.baselines.performer import RandomFeatures
from fairseq_transnormer.modules.layers import LayerStack

LENGTH, WIDTH, HEADS = 11, 16, 2
causality = pytest.mark.parametrize("causal", [False, True])


def build(name, *, causal, **values):
    config = Config(embed_dim=WIDTH, num_heads=HEADS, **values)
    return ATTENTIONS[name](config, causal=causal)


def linear(module, x):
    return x @ module.weight.T + module.bias


def attention(layer, x, scores, divide=True):
    """O, from (H, N, N) scores that a system defines of q and k (N, H, D) of a row."""
    rows = []
    for row in x:
        q, k, v = (
            linear(p, row).unflatten(-1, (layer.num_heads, -1))
            for p in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        weights = scores(q, k)
        if layer.causal:
            weights = weights.tril()
        if divide:
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-6)
        o = torch.einsum("hij,jhd->ihd", weights, v).flatten(1)
        rows.append(linear(layer.out_proj, o))
    return torch.stack(rows)


def dots(q, k):
    return torch.einsum("ihd,jhd->hij", q, k)


def check(layer, scores, divide=True):
    layer, x = layer.double().eval(), torch.randn(2, LENGTH, WIDTH).double()
    expected = attention(layer, x, scores, divide)
    torch.testing.assert_close(layer(x)[0], expected, rtol=1e-6, atol=1e-6)


@causality
@torch.no_grad()
def test_softmax(causal):
    def scores(q, k):
        return (dots(q, k) / math.sqrt(q.shape[-1])).exp()

    check(build("softmax", causal=causal), scores)


@causality
@pytest.mark.parametrize("normalizer", ["sum", "none"])
@torch.no_grad()
def test_one_plus_elu(normalizer, causal):
    def phi(x):
        return torch.where(x > 0, x + 1, x.exp())

    check(
        build("linear", causal=causal, linear_normalizer=normalizer),
        lambda q, k: dots(phi(q), phi(k)),
        divide=normalizer == "sum",
    )


@pytest.mark.parametrize(
    ("causal", "length"), [(True, 11), (True, 40), (False, 11), (False, 40), (False, 0)]
)
@torch.no_grad()
def test_cosformer(length, causal):
    """The explicit matrix of cos(pi / 2 (i - j) / m)."""

    def scores(q, k):
        m = length or len(q)
        distance = torch.arange(len(q))[:, None] - torch.arange(len(q))
        return dots(q.relu(), k.relu()) * (math.pi / 2 * distance / m).cos()

    check(build("cosformer", causal=causal, cosformer_length=length), scores)


def test_the_longest_input_is_what_all_layers_take():
    lengths = {"cosformer_length": 8, "linformer_length": 6}
    for types in ("cosformer,linformer,norm", "norm,linformer,cosformer"):
        config = EncoderConfig(attention_types=types, **lengths)
        assert LayerStack(config, causal=False).longest_input == 6


@causality
@pytest.mark.parametrize("num_features", [5, 64])
@torch.no_grad()
def test_performers_features(num_features, causal):
    layer = build("performer", causal=causal, performer_features=num_features)

    def scores(q, k):
        w, root = layer.features.directions, q.shape[-1] ** 0.25

        def exponents(x):
            x = x / root
            return x @ w.T - (x * x).sum(-1, keepdim=True) / 2

        q, k = exponents(q), exponents(k)
        q = q - q.amax(-1, keepdim=True)
        if not causal:
            k = k - k.amax((0, 2), keepdim=True)
        return dots(*(x.exp() / math.sqrt(num_features) + 1e-4 for x in (q, k)))

    check(layer, scores)


@causality
@torch.no_grad()
def test_performer_converges_to_softmax_attention(causal, monkeypatch):
    """The error falls with the square root of the number of features."""
    monkeypatch.setattr(performer, "SMALLEST_FEATURE", 0.0)
    softmax = build("softmax", causal=causal).double()
    # long queries and keys would need many more features
    x = 0.4 * torch.randn(2, LENGTH, WIDTH).double()
    expected, errors = softmax(x)[0], []
    for num_features in (64, 64 * 64):
        layer = build("performer", causal=causal, performer_features=num_features)
        layer.double()
        layer.load_state_dict(softmax.state_dict(), strict=False)
        found = []
        for _ in range(8):
            layer.features.draw()
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


def test_performers_directions_are_drawn_once_and_saved():
    torch.manual_seed(5)
    layer = ATTENTIONS["performer"](Config(), causal=True)
    torch.manual_seed(5)
    again = ATTENTIONS["performer"](Config(), causal=True)
    directions = layer.features.directions
    assert directions.shape == (64, 64)
    assert torch.equal(again.features.directions, directions)
    before = directions.clone()
    for mode in (True, False):
        layer.train(mode)(torch.randn(1, 9, 512))
    assert torch.equal(layer.features.directions, before)
    again.features.draw(torch.Generator().manual_seed(1))
    assert not torch.equal(again.features.directions, before)
    again.load_state_dict(layer.state_dict(), strict=True)
    assert torch.equal(again.features.directions, before)
    assert layer.half().features.directions.dtype == torch.float32
    assert all(p.dtype == torch.float16 for p in layer.parameters())


@torch.no_grad()
def test_performers_causal_exponents_stay_in_float32():
    """Keys as long as the longest direction, in a wide head."""
    config = Config(embed_dim=256, num_heads=1)
    layer = ATTENTIONS["performer"](config, causal=True).eval()
    w = layer.features.directions
    key = 256**0.25 * w[w.norm(dim=1).argmax()].expand(1, 512, 1, -1)
    query, features = layer.features(key, key, None, causal=True)
    assert features.isfinite().all() and features.sum() < 1e32
    assert query.max() <= 1
