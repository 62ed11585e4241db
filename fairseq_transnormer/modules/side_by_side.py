"""Linear layers of one input as one product."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SideBySide(nn.Module):
    """Linear layers of one input as one product, for evaluation.

    Args:
        layers: with biases and one number of inputs; their weights are copied.
    """

    def __init__(self, *layers: nn.Linear):
        super().__init__()
        self.widths = [layer.out_features for layer in layers]
        self.weight, self.bias = (
            nn.Parameter(torch.cat(parameters).detach(), requires_grad=False)
            for parameters in zip(*((x.weight, x.bias) for x in layers), strict=True)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(..., I) -> (..., O) for each layer, views of one tensor."""
        return F.linear(x, self.weight, self.bias).split_with_sizes(self.widths, -1)
