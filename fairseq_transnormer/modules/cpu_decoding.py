"""A model laid out for decoding on a CPU, where each token needs all weights.

The product of a weight with one token takes as long as the weight takes to come from
memory. MKL reads a float32 weight that is higher than wide faster by columns, and
several weights of one input faster as one.
"""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def lay_out_for_decoding(model: nn.Module) -> None:
    """Change a model for good; what it computes stays the same, but for rounding.

    Modules with ``merge_products`` merge them, and float32 weights that are higher than
    wide are stored by columns. The model can neither be trained any more nor take the
    ``state_dict`` that it had.

    Args:
        model: on a CPU, in evaluation.
    """
    for module in [*model.modules()]:
        if isinstance(module, MergesProducts):
            module.merge_products()
    for module in model.modules():
        if isinstance(module, (SideBySide, nn.Linear, nn.Embedding)):
            weight = module.weight
            outputs, inputs = weight.shape
            if weight.dtype == torch.float32 and outputs >= inputs:
                weight.data = weight.data.t().contiguous().t()


@runtime_checkable
class MergesProducts(Protocol):
    """A module that multiplies one input by several weights."""

    def merge_products(self) -> None:
        """Make them one product, for good."""


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

    if TYPE_CHECKING:
        __call__ = forward
