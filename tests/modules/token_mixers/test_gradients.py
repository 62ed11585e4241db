"""Gradients against finite differences in float64."""

import torch
from torch.func import functional_call

from .cases import all_cases, draw


@all_cases
def test_of_inputs_and_parameters(case, causal):
    layer = case.layer(causal, embed_dim=8, block_size=4)
    names = [name for name, p in layer.named_parameters() if p.requires_grad]
    parameters = [layer.get_parameter(name) for name in names]
    pads = torch.zeros(2, 11, dtype=torch.bool)
    pads[1, 7:] = True

    def function(x, *values):
        parameters = dict(zip(names, values, strict=True))
        x, _ = functional_call(layer, parameters, (x, pads))
        return x.masked_fill(pads[..., None], 0)

    x = draw(2, 11, width=8).requires_grad_()
    torch.autograd.gradcheck(function, (x, *parameters), fast_mode=True)
