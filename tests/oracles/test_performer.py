"""Performer against performer-pytorch: the same but for where the 1e-4 stands."""

import functools

import pytest
import torch
import torch.nn.functional as F

from fairseq_transnormer.modules import EncoderConfig
from fairseq_transnormer.modules.baselines import performer
from fairseq_transnormer.modules.baselines.performer import PerformerAttention

from .comparing import HEADS, WIDTH, assert_same, draw, relative_difference

# widths of a head, random features: a small one and the paper's
SIZES = [(8, 16), (64, 64)]


@pytest.fixture
def theirs():
    return pytest.importorskip("performer_pytorch.performer_pytorch")


@torch.no_grad()
def test_without_the_1e_4_it_is_performer_pytorchs(theirs, monkeypatch):
    """Stabilisers differ, and cancel where nothing is added to the features."""
    monkeypatch.setattr(performer, "SMALLEST_FEATURE", 0.0)
    kernel = functools.partial(theirs.softmax_kernel, eps=0.0)
    monkeypatch.setattr(theirs, "softmax_kernel", kernel)
    config = EncoderConfig(embed_dim=WIDTH, num_heads=HEADS, performer_features=20)
    ours = PerformerAttention(config, causal=False).double()
    other = theirs.SelfAttention(
        WIDTH,
        heads=HEADS,
        dim_head=WIDTH // HEADS,
        nb_features=20,
        qkv_bias=True,
    ).double()
    weights = {"fast_attention.projection_matrix": ours.features.directions}
    for name, part in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj")):
        projection = getattr(ours, part)
        weights |= {f"to_{name}.{k}": v for k, v in projection.state_dict().items()}
    weights |= {f"to_out.{k}": v for k, v in ours.out_proj.state_dict().items()}
    other.load_state_dict(weights)
    x = draw(33)
    assert_same("performer", ours(x)[0], other(x), 1e-12)


def both(theirs, width, features, deviation):
    """Outputs for queries and keys whose numbers have this standard deviation."""
    config = EncoderConfig(embed_dim=width, num_heads=1, performer_features=features)
    ours = PerformerAttention(config, causal=False).double()
    other = theirs.FastAttention(width, nb_features=features).double()
    other.projection_matrix.copy_(ours.features.directions)
    q, k, v = torch.randn(3, 1, 128, 1, width, dtype=torch.float64)
    q, k = deviation * q, deviation * k
    found, _ = ours.attend(q, k, v, None, None, None, False)
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    return (q, k, v), found, other(*heads_first).squeeze(1), ours.features.directions


def their_definition(q, k, v, directions):
    """The 1e-4 inside m^-1/2, and |x|^2 / 2 outside the stabiliser."""

    def features(x, over):
        x = x[:, :, 0] * x.shape[-1] ** -0.25
        products = x @ directions.T
        stabiliser = products.amax(over, keepdim=True)
        square = x.square().sum(-1, keepdim=True) / 2
        return (products - square - stabiliser).exp() + 1e-4

    scores = features(q, -1) @ features(k, (-1, -2)).transpose(1, 2)
    return scores / scores.sum(-1, keepdim=True) @ v[:, :, 0]


@pytest.mark.parametrize(("width", "features"), SIZES)
@pytest.mark.parametrize("deviation", [0.25, 0.5, 1, 2])
@torch.no_grad()
def test_the_1e_4_makes_a_difference(theirs, width, features, deviation):
    """Short queries hardly notice it, long ones do; docs/systems.md has the figures.

    There, what theirs adds stands against features smaller by exp(|x|^2 / 2), so that
    weights become equal.
    """
    found = []
    for _ in range(8):
        (q, k, v), ours, other, directions = both(theirs, width, features, deviation)
        same = their_definition(q, k, v, directions)
        assert relative_difference(same, other) < 1e-12
        exact = F.scaled_dot_product_attention(*(x[:, :, 0] for x in (q, k, v)))
        mean = v[:, :, 0].mean(1, keepdim=True).expand_as(exact)
        found.append(
            (
                relative_difference(ours, other),
                relative_difference(ours, exact),
                relative_difference(other, exact),
                relative_difference(other, mean),
            )
        )
    found = torch.tensor(found)
    apart, our_error, their_error, of_the_mean = found.median(0).values.tolist()
    print(
        f"heads of {width}, {features} features, deviation {deviation}: "
        f"{found[:, 0].min():.2g} to {found[:, 0].max():.2g} apart; from softmax "
        f"attention ours {our_error:.2g}, theirs {their_error:.2g}; "
        f"theirs from the plain mean {of_the_mean:.2g}"
    )
    assert apart > 1e-5
    if deviation <= 0.5:
        assert apart < 0.1
    if deviation == 2:
        assert apart > 1 and of_the_mean < 0.05
