"""Model FLOPs: what a token costs by the systems' equations, whoever computes them.

A product of matrices counts two operations for each multiplication, and nothing else
counts (PaLM, appendix B). Scores are counted whole where half of them are hidden;
linear attention by its sums, S += k v^T and q S, whatever chunks an implementation
makes of them. The backward pass costs twice the forward pass; recomputation is not
counted.

With width d, heads of D = d / H, length n, a token and a layer besides its projections:

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

from collections.abc import Callable

from torch import nn

from .attention_pairs import AttentionPair
from .baselines.cosformer import CosformerAttention
from .baselines.flash import Flash
from .baselines.flash_quad import FlashQuad
from .baselines.linear_attention import LinearAttention
from .baselines.performer import PerformerAttention
from .baselines.softmax_attention import SoftmaxAttention
from .diag_attention import DiagAttention
from .norm_attention import NormAttention
from .registry import ATTENTIONS, LAYERS, token_mixers

TRAINING_OVER_FORWARD = 3


def _linear(layer, features: int, divisor: bool) -> float:
    return 4 * layer.num_heads * features * (layer.head_dim + divisor)


def _performer(layer: PerformerAttention, length: int) -> float:
    features = len(layer.features.directions)
    return 4 * layer.embed_dim * features + _linear(layer, features, True)


def _flash_quad(layer: FlashQuad, length: int) -> float:
    keys, values = layer.base_proj.out_features, layer.value_proj.out_features
    return 2 * length * (keys + values)


def _flash(layer: Flash, length: int) -> float:
    keys, values = layer.base_proj.out_features, layer.value_proj.out_features
    return 2 * layer.chunk_size * (keys + values) + 4 * keys * values


# token mixer -> operations a token besides its projections, of (module, length)
MIXING_FLOPS: dict[type[nn.Module], Callable[[nn.Module, int], float]] = {
    DiagAttention: lambda m, n: 4 * min(m.block_size, n) * m.embed_dim,
    NormAttention: lambda m, n: _linear(m, m.head_dim, False),
    LinearAttention: lambda m, n: _linear(m, m.head_dim, m.normalize),
    CosformerAttention: lambda m, n: _linear(m, 2 * m.head_dim, True),
    PerformerAttention: _performer,
    SoftmaxAttention: lambda m, n: 4 * n * m.embed_dim,
    FlashQuad: _flash_quad,
    Flash: _flash,
}


def layer_flops(layers: nn.Module, length: int) -> float:
    """Operations a token in a forward pass through layers.

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
        elif type(module) in MIXING_FLOPS:
            total += MIXING_FLOPS[type(module)](module, length)
        elif isinstance(module, mixers) and not isinstance(module, AttentionPair):
            raise ValueError(
                f"model FLOPs of {type(module).__name__} are not counted; counted are "
                f"{', '.join(_counted())}"
            )
    return total


def output_flops(
    embed_dim: int, vocab_size: int, *, dense: bool, predicted: float = 1.0
) -> float:
    """Operations a token in a forward pass through the output layer.

    Args:
        embed_dim, vocab_size: of its matrix.
        dense: whether a layer of (embed_dim, embed_dim) stands in front, as in the
            masked-LM head.
        predicted: share of the tokens that are predicted.
    """
    return 2 * embed_dim * (vocab_size + dense * embed_dim) * predicted


def _counted() -> list[str]:
    kinds = ATTENTIONS | LAYERS
    return [
        name
        for name in token_mixers()
        if kinds[name] in MIXING_FLOPS or issubclass(kinds[name], AttentionPair)
    ]
