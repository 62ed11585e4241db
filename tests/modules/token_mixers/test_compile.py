"""torch.compile takes each mixer as one graph and changes nothing."""

import pytest
import torch

from .cases import ALL, DEFAULT_CASES, draw, over

# a whole layer; compiling one takes a second and more. The paper's attentions are in
# the graph of a whole model, ../test_compiled_layers.py
USUAL = {("flash", True)}
CASES = [
    pair
    if (pair[0].name, pair[1]) in USUAL
    else pytest.param(*pair, marks=pytest.mark.slow)
    for pair in ALL
    if pair[0] in DEFAULT_CASES.values()
]


@over(CASES)
def test_one_graph(case, causal):
    torch.compiler.reset()
    layer, x = case.layer(causal), draw(2, 20).requires_grad_()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    results = []
    for function in (layer, compiled):
        y, _ = function(x)
        (gradient,) = torch.autograd.grad(y.square().sum(), x)
        results.append((y, gradient))
    torch.testing.assert_close(results[0], results[1])
