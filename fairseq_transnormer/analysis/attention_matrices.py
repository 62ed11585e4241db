"""The N x N attention matrix of every layer, linear ones included.

What an attention computes from its values is linear in them: O = P V. So P is what it
gives for the identity matrix in place of V. That holds for any ``Attention``, whatever
it computes P from and whether it ever makes it. The norm after the sum is left out.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)

# two ways to the same float32 sums: with and without the matrix in between
TOLERANCE = 1e-3


@torch.no_grad()
def attention_matrices(
    model: nn.Module, forward: Callable[[], object]
) -> dict[str, Tensor]:
    """The matrices of all attentions of ``model`` that ``forward`` runs.

    An attention is a module with ``attend`` as ``modules.attention.Attention`` has it.
    One whose output is not linear in its values has no matrix; it is left out, with a
    warning.

    Args:
        model: in evaluation mode.
        forward: calls the model on whole sequences, without states.

    Returns:
        name of the module -> (B, H, N, N). Entry i, j is what value j contributes to
        output i before any norm. Scores of a linear attention are not normalised and
        may be negative (``row_distributions``).

    Raises:
        ValueError: none has a matrix.
    """
    found: dict[str, Tensor | None] = {}

    def recorded(name: str, module: nn.Module):
        attend = module.attend

        def call(*arguments):
            # without what attend takes last: state and return_state
            inputs = (*arguments[:5], None, False)
            found[name] = None
            if len(arguments) == len(inputs):  # LS and FLASH take others
                found[name] = matrix_of(attend, getattr(module, "norm", None), inputs)
            return attend(*arguments)

        return mock.patch.object(module, "attend", call)

    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if callable(getattr(module, "attend", None)):
                stack.enter_context(recorded(name, module))
        forward()
    matrices = {name: each for name, each in found.items() if each is not None}
    for name in found.keys() - matrices.keys():
        logger.warning("%s is not linear in its values: no attention matrix", name)
    if not matrices:
        raise ValueError(f"no attention matrix in {type(model).__name__}")
    return matrices


def row_distributions(matrices: Tensor) -> Tensor:
    """|P| with each row divided by its sum, in float64; rows of zeros stay.

    Softmax weights are not changed. Scores of a linear attention can be negative (LRPE
    turns features, elu has negative ones); how much of an output is from j is |p_ij|.
    """
    weights = matrices.double().abs()
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)


def matrix_of(attend, norm: nn.Module | None, arguments: tuple) -> Tensor | None:
    """P (B, H, N, N) of one call of ``attend``; None if the output is not P V.

    Args:
        attend: ``Attention.attend`` of a module.
        norm: the module that it applies to the concatenated heads, to be left out.
        arguments: of the call; no state.
    """
    query, key, value, *others = arguments
    length, heads, width = value.shape[1:]

    def sums(values: Tensor) -> Tensor:
        output, _ = attend(query, key, values, *others)
        return output.unflatten(-1, (heads, width))

    left_out = contextlib.nullcontext()
    if norm is not None:
        left_out = norm.register_forward_hook(lambda _, inputs, output: inputs[0])
    with left_out:
        identity = torch.eye(length, -(-length // width) * width).to(value)
        columns = [
            sums(block[None, :, None].expand_as(value).contiguous())
            for block in identity.split(width, dim=1)
        ]
        expected = sums(value).double()
    matrix = torch.cat(columns, -1)[..., :length].transpose(1, 2)
    product = (matrix.double() @ value.transpose(1, 2).double()).transpose(1, 2)
    error = (product - expected).abs().max()
    return matrix if error <= TOLERANCE * expected.abs().max() else None
