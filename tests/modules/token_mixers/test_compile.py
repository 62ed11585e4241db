"""torch.compile takes each mixer as one graph and changes nothing."""

import torch

from .cases import default_cases, draw


@default_cases
def test_one_graph(case, causal):
    torch.compiler.reset()
    layer, x = case.layer(causal), draw(2, 20).requires_grad_()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    results = []
    for function in (layer, compiled):
        y = function(x)
        (gradient,) = torch.autograd.grad(y.square().sum(), x)
        results.append((y, gradient))
    torch.testing.assert_close(results[0], results[1])
