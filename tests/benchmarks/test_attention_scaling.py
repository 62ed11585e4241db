"""The contestants compute what they are compared for; the growth is the exponent."""

import pytest
import torch

from benchmarks.attention_scaling import FORWARD, TRAINING, contestants, make_call
from benchmarks.attention_scaling_report import growth

SHAPE = (2, 33, 2, 8)
OURS_AND_PEERS = [
    ("linear attention (torch)", "naive linear attention"),
    ("block attention (torch)", "scaled_dot_product_attention"),
]


@pytest.mark.parametrize("names", OURS_AND_PEERS, ids=str)
def test_peers_compute_the_same(names):
    """One block holds the whole sequence, so that block attention is softmax's."""
    ours, peer = (contestants(64)[name] for name in names)
    inputs = torch.randn(3, *SHAPE)
    expected = peer.attend(*(inputs if peer.length_first else inputs.transpose(2, 3)))
    if not peer.length_first:
        expected = expected.transpose(1, 2)
    torch.testing.assert_close(ours.attend(*inputs), expected)


@pytest.mark.parametrize("name", contestants(64))
def test_modes(name):
    make = dict(shape=SHAPE, device="cpu", dtype=torch.float32)
    output = make_call(contestants(64)[name], FORWARD, **make)()
    assert not output.requires_grad
    grads = make_call(contestants(64)[name], TRAINING, **make)()
    assert [g.shape for g in grads] == [output.shape] * 3


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_growth_of_a_power_law(exponent):
    line = {n: 3.0 * n**exponent for n in (512, 1024, 2048, 4096)}
    assert growth(line) == pytest.approx(exponent)
    # what lies before the last three doublings does not count
    assert growth({**line, 256: 1e9}) == pytest.approx(exponent)
    assert growth({512: 1.0, 1024: 2.0, 2048: 4.0}) is None


def test_every_backend_enters_with_both_of_our_attentions():
    names = set(contestants(64, ["torch", "triton"])) - set(contestants(64))
    assert names == {"linear attention (triton)", "block attention (triton)"}
