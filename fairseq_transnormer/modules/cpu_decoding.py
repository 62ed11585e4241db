"""A model laid out for decoding on a CPU, where each token needs all weights.

The product of a weight with one token takes as long as the weight takes to come from
memory. MKL reads a float32 weight that is higher than wide faster by columns, and
several weights of one input faster as one.
"""

import torch
from torch import nn

from .side_by_side import SideBySide


def lay_out_for_decoding(model: nn.Module) -> None:
    """Change a model for good; what it computes stays the same, but for rounding.

    Modules with ``merge_products`` merge them, and float32 weights that are higher than
    wide are stored by columns. The model can neither be trained any more nor take the
    ``state_dict`` that it had.

    Args:
        model: on a CPU, in evaluation.
    """
    for module in [*model.modules()]:
        if hasattr(module, "merge_products"):
            module.merge_products()
    for module in model.modules():
        if isinstance(module, (SideBySide, nn.Linear, nn.Embedding)):
            weight = module.weight
            outputs, inputs = weight.shape
            if weight.dtype == torch.float32 and outputs >= inputs:
                weight.data = weight.data.t().contiguous().t()
