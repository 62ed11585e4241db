"""SimpleRMSNorm and its kin, GLU and FFN, against their equations."""

import pytest
import torch

from fairseq_transnormer.modules import FFN, GLU, RMSNorm, SimpleRMSNorm
from fairseq_transnormer.modules.norms import NORMS, build_norm
from tests.ops import equations

halves = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


def test_simple_rms_norm():
    norm, x = SimpleRMSNorm(6, eps=0.1), torch.randn(2, 3, 6)
    torch.testing.assert_close(norm(x).double(), equations.rms_norm(x, eps=0.1))
    assert list(norm.parameters()) == list(norm.buffers()) == []
    assert "6" in repr(norm) and "0.1" in repr(norm)


def test_rms_norm_has_a_gain():
    norm, x = RMSNorm(6), torch.randn(2, 3, 6)
    assert (norm.weight == 1).all()
    torch.nn.init.normal_(norm.weight)
    expected = equations.rms_norm(x, eps=1e-8) * norm.weight
    torch.testing.assert_close(norm(x).double(), expected)


@pytest.mark.parametrize("name", NORMS)
@halves
@torch.no_grad()
def test_sums_beyond_float16_can_be_normalised(name, dtype):
    """Attentions hand float32 sums to the norms of a half-precision model."""
    norm = build_norm(name, 64, 1e-8).to(dtype)
    x = 1e5 * torch.randn(3, 64)
    y = norm(x)
    assert y.isfinite().all()
    if name != "none":
        wide = build_norm(name, 64, 1e-8)
        torch.testing.assert_close(y.float(), wide(x), rtol=1e-2, atol=1e-2)


ACTIVATIONS = {
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "gelu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    "relu": lambda x: x * (x > 0),
}
activations = pytest.mark.parametrize("activation", ACTIVATIONS)


@activations
def test_glu(activation):
    glu = GLU(6, 10, activation).double()
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    w1, w2, w3 = glu.gate_proj, glu.value_proj, glu.out_proj
    inside = ACTIVATIONS[activation](x @ w1.weight.T + w1.bias)
    inside = inside * (x @ w2.weight.T + w2.bias)
    torch.testing.assert_close(glu(x), inside @ w3.weight.T + w3.bias)


@activations
def test_ffn(activation):
    ffn = FFN(6, 10, activation).double()
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    inside = ACTIVATIONS[activation](x @ ffn.in_proj.weight.T + ffn.in_proj.bias)
    expected = inside @ ffn.out_proj.weight.T + ffn.out_proj.bias
    torch.testing.assert_close(ffn(x), expected)


@pytest.mark.parametrize("mixer", [GLU, FFN])
def test_dropout_of_channel_mixers_is_for_training(mixer):
    module = mixer(6, 1000, dropout=0.5)
    x = torch.randn(1, 6)
    with torch.no_grad():
        assert not torch.equal(module(x), module(x))
        module.eval()
        assert torch.equal(module(x), module(x))
