"""The computations in plain torch: (B, N, H, D) in and out, in the inputs' dtype.

``ops.reference`` sums in float32 at least; what is measured, and the error that plain
torch has in bfloat16, are these.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_transnormer.ops import FEATURE_MAPS


def causal_linear_attention(
    query: Tensor, key: Tensor, value: Tensor, feature_map: str = "identity"
) -> Tensor:
    """With the length x length matrix."""
    phi = FEATURE_MAPS[feature_map]
    scores = _scores(phi(query), phi(key))
    return _weighted(scores.tril(), value)


def bidirectional_linear_attention(
    query: Tensor, key: Tensor, value: Tensor, feature_map: str = "identity"
) -> Tensor:
    """Keys times values first: two products, linear in the length."""
    phi = FEATURE_MAPS[feature_map]
    q, k, v = (x.transpose(1, 2) for x in (phi(query), phi(key), value))
    return (q @ (k.transpose(-1, -2) @ v)).transpose(1, 2)


def softmax_attention(
    query: Tensor, key: Tensor, value: Tensor, causal: bool
) -> Tensor:
    scores = query.shape[-1] ** -0.5 * _scores(query, key)
    if causal:
        future = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    return _weighted(scores.softmax(-1), value)


def block_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_size: int,
    causal: bool,
    activation: str,
) -> Tensor:
    """Batched products over the blocks; the length is a multiple of their size."""
    q, k, v = (in_blocks(x, block_size) for x in (query, key, value))
    if activation == "softmax":
        return softmax_attention(q, k, v, causal).reshape(value.shape)
    scores = (query.shape[-1] ** -0.5 * _scores(q, k)).relu()
    return _weighted(scores.tril() if causal else scores, v).reshape(value.shape)


def in_blocks(x: Tensor, block_size: int) -> Tensor:
    """(B, N, H, D) as (B N / block_size, block_size, H, D), a view."""
    return x.unflatten(1, (-1, block_size)).flatten(0, 1)


def feature_map_and_lrpe(
    query: Tensor, key: Tensor, theta: Tensor, reflection: Tensor
) -> tuple[Tensor, ...]:
    """1 + elu, the reflection, the rotation of pairs; angles in theta's dtype."""
    positions = torch.arange(query.shape[1], device=query.device)
    angles = (positions[:, None] * theta)[:, None]
    cos, sin, found = angles.cos(), angles.sin(), []
    for x in (query, key):
        wide = FEATURE_MAPS["1+elu"](x).to(reflection.dtype)
        wide = wide - 2 * (wide @ reflection)[..., None] * reflection
        even, odd = wide[..., 0::2], wide[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
        found.append(turned.flatten(-2).to(x.dtype))
    return tuple(found)


def rms_norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=1e-8)


def gated_silu(gate: Tensor, value: Tensor) -> Tensor:
    return F.silu(gate) * value


def norm_attention(
    query: Tensor, key: Tensor, value: Tensor, theta: Tensor, reflection: Tensor
) -> Tensor:
    """NormAttention after its projections, T2: (B, N, H D)."""
    query, key = feature_map_and_lrpe(query, key, theta, reflection)
    return rms_norm(causal_linear_attention(query, key, value).flatten(2))


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return query.transpose(1, 2) @ key.permute(0, 2, 3, 1)


def _weighted(weights: Tensor, value: Tensor) -> Tensor:
    return (weights @ value.transpose(1, 2)).transpose(1, 2)
