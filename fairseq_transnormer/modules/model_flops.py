"""Model FLOPs: the cost of a token by the systems' equations.

A product of matrices counts two operations per multiplication; nothing else counts
(PaLM, appendix B). Hidden scores count too. Linear attention counts its sums, S += k
v^T and q S, for any chunks of an implementation. The backward pass costs twice the
forward pass. Recomputation does not count.

Every attention counts itself (``mixing_flops``). Operations per token and layer,
without the projections, with width d, heads of D = d / H and length n:

    diag                    4 w d            blocks of w (n, if that is shorter)
    norm                    4 d D
    linear                  4 d D            and 4 d for the divisor, if it has one
    cosformer               8 d (D + 1)      twice the features
    performer               4 d m + 4 H m (D + 1)    m features and the divisor
    softmax                 4 n d
    flash_quad              2 n (s + e)      keys of s, values of e
    flash                   2 c (s + e) + 4 s e      chunks of c
"""

from __future__ import annotations

from torch import nn

from .registry import ATTENTIONS, LAYERS

TRAINING_OVER_FORWARD = 3


def layer_flops(layers: nn.Module, length: int) -> float:
    """Operations per token in a forward pass through layers.

    Args:
        layers: a ``LayerStack``, or any module whose linear layers see each token once.
        length: tokens of a sequence.

    Raises:
        ValueError: a token mixer in it is not counted.
    """
    mixers = tuple({*ATTENTIONS.values(), *LAYERS.values()})
    total = 0.0
    for module in layers.modules():
        if isinstance(module, nn.Linear):
            total += 2 * module.weight.numel()
        elif isinstance(module, mixers):
            count = getattr(module, "mixing_flops", None)
            flops = None if count is None else count(length)
            if flops is None:
                raise ValueError(
                    f"model FLOPs of {type(module).__name__} are not counted"
                )
            total += flops
    return total


def output_flops(
    embed_dim: int, vocab_size: int, *, dense: bool, predicted: float = 1.0
) -> float:
    """Operations per token in a forward pass through the output layer.

    Args:
        embed_dim, vocab_size: of its matrix.
        dense: whether a layer of (embed_dim, embed_dim) precedes it, as in the
            masked-LM head.
        predicted: share of the tokens that are predicted.
    """
    return 2 * embed_dim * (vocab_size + dense * embed_dim) * predicted
