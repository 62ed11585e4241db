"""Table 12's layers against their two attentions."""

import torch

from fairseq_transnormer.modules import ATTENTIONS, DiagAttention, NormAttention
from tests.modules.token_mixers.cases import DEFAULT_CASES, draw


def parts(name):
    layer = DEFAULT_CASES[name].layer(causal=True)
    kinds = {type(part): part for part in layer.children()}
    return layer, kinds[DiagAttention], kinds[NormAttention], draw(2, 20)


@torch.no_grad()
def test_in_sequence():
    layer, diag, norm, x = parts("diag_then_norm")
    torch.testing.assert_close(layer(x)[0], norm(diag(x)[0])[0])
    layer, diag, norm, x = parts("norm_then_diag")
    torch.testing.assert_close(layer(x)[0], diag(norm(x)[0])[0])


@torch.no_grad()
def test_beside_each_other_is_a_projection_of_what_is_concatenated():
    layer, diag, norm, x = parts("diag_beside_norm")
    inside = []
    for attention in (diag, norm):
        attention.out_proj.register_forward_pre_hook(
            lambda module, args: inside.append(args[0])
        )
    y = layer(x)[0]
    both = torch.cat(inside, -1)
    weight = torch.cat((diag.out_proj.weight, norm.out_proj.weight), 1)
    assert both.shape == (2, 20, 32) and weight.shape == (16, 32)
    bias = diag.out_proj.bias + norm.out_proj.bias
    torch.testing.assert_close(y, both @ weight.T + bias)


def test_parameters():
    def count(name):
        config = DEFAULT_CASES[name].config(causal=True)
        layer = ATTENTIONS[name](config, causal=True)
        return sum(p.numel() for p in layer.parameters())

    for name in ("diag_then_norm", "norm_then_diag", "diag_beside_norm"):
        assert count(name) == count("diag") + count("norm")
