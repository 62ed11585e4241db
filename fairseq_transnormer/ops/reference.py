"""The paper's equations, stated literally: quadratic, for readers and for tests.

Each function takes what the public op of the same name takes. Letters: B batch,
N length of queries, M of keys, H heads, D head width of queries and keys, E of values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import accumulation_dtype, autocast_disabled, unscaled_output_dtype
from .feature_maps import FEATURE_MAPS
from .inputs import real_lengths, zero_pads
from .states import BlockAttentionState, LinearAttentionState


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool,
    feature_map: str = "identity",
    key_padding_mask: Tensor | None = None,
    normalize: bool = False,
    eps: float = 1e-6,
    initial_state: LinearAttentionState | None = None,
    return_state: bool = False,
) -> tuple[Tensor, LinearAttentionState | None]:
    """Equation 3 with (``normalize``) and without the scaling by Delta."""
    with autocast_disabled(query):
        query, key = FEATURE_MAPS[feature_map](query), FEATURE_MAPS[feature_map](key)
        key, value = zero_pads(key, value, key_padding_mask)
        dtype = accumulation_dtype(query.dtype)
        q, k, v = (x.to(dtype).transpose(1, 2) for x in (query, key, value))
        scores = q @ k.transpose(-1, -2)
        if causal:
            scores = scores.tril()
        output = scores @ v
        total = scores.sum(-1, keepdim=True)
        key_value, key_sum = k.transpose(-1, -2) @ v, k.sum(2)
        length = real_lengths(key, key_padding_mask)
        if initial_state is not None:
            output = output + q @ initial_state.key_value
            key_value = key_value + initial_state.key_value
            length = length + initial_state.length
            if initial_state.key_sum is not None:
                total = total + q @ initial_state.key_sum.unsqueeze(-1)
                key_sum = key_sum + initial_state.key_sum
        if normalize:
            output = (output / total.clamp(min=eps)).to(value.dtype)
        output = output.transpose(1, 2).to(
            value.dtype if normalize else unscaled_output_dtype(value.dtype)
        )
        if not return_state:
            return output, None
        return output, LinearAttentionState(
            key_value, key_sum if normalize else None, length
        )


def block_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    block_size: int,
    causal: bool,
    activation: str = "softmax",
    scale: float | None = None,
    dropout_p: float = 0.0,
    key_padding_mask: Tensor | None = None,
    initial_state: BlockAttentionState | None = None,
    return_state: bool = False,
) -> tuple[Tensor, None]:
    """Section 4.2: position i attends to position j where both are in one block."""
    if initial_state is not None or return_state:
        raise NotImplementedError(
            "backend='reference' keeps no state in block_attention; allowed: torch"
        )
    with autocast_disabled(query):
        key, value = zero_pads(key, value, key_padding_mask)
        dtype = accumulation_dtype(query.dtype)
        q, k, v = (x.to(dtype).transpose(1, 2) for x in (query, key, value))
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        scores = scale * q @ k.transpose(-1, -2)
        position = torch.arange(query.shape[1], device=query.device)
        block = position // block_size
        visible = block[:, None] == block[None, :]
        if causal:
            visible = visible & (position[None, :] <= position[:, None])
        visible = visible[None, None]
        if key_padding_mask is not None:
            visible = visible & ~key_padding_mask[:, None, None, :]
        if activation == "relu":
            weights = torch.where(visible, scores.relu(), 0.0)
        else:
            # a row that sees nothing gives zeros, not NaN
            weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
            weights = torch.where(visible, weights, 0.0)
        weights = torch.dropout(weights, dropout_p, train=True)
        output = (weights @ v).transpose(1, 2)
        relu = activation == "relu"
        dtype = unscaled_output_dtype(value.dtype) if relu else value.dtype
        return output.to(dtype), None


def rms_norm(x: Tensor, *, eps: float = 1e-8) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last dimension."""
    wide = x.to(accumulation_dtype(x.dtype))
    return (wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt()).to(x.dtype)


def lrpe(
    query: Tensor,
    key: Tensor,
    theta: Tensor,
    reflection: Tensor,
    positions: Tensor,
    *,
    feature_map: str = "identity",
) -> tuple[Tensor, Tensor]:
    """phi, the reflection I - 2 v v^T, the rotation by position * theta, as matrices.

    One (D, D) rotation matrix per position: a test's tool, not for long inputs.
    """
    dtype = accumulation_dtype(query.dtype)
    width = query.shape[-1]
    v = reflection.to(dtype)
    householder = torch.eye(width, dtype=dtype, device=v.device) - 2 * torch.outer(v, v)
    angles = positions.to(dtype)[..., None] * theta.to(dtype)
    cos, sin = angles.cos(), angles.sin()
    rotation = query.new_zeros(*angles.shape[:-1], width, width, dtype=dtype)
    even = torch.arange(0, width, 2, device=v.device)
    rotation[..., even, even] = cos
    rotation[..., even, even + 1] = -sin
    rotation[..., even + 1, even] = sin
    rotation[..., even + 1, even + 1] = cos
    if rotation.dim() == 3:
        rotation = rotation[None]
    phi = FEATURE_MAPS[feature_map]
    query, key = (
        torch.einsum("bnij,jk,bnhk->bnhi", rotation, householder, phi(x.to(dtype))).to(
            x.dtype
        )
        for x in (query, key)
    )
    return query, key


def gated_silu(gate: Tensor, value: Tensor) -> Tensor:
    """gate * sigmoid(gate) * value."""
    wide = gate.to(accumulation_dtype(gate.dtype))
    return (wide * torch.sigmoid(wide) * value).to(value.dtype)


def gradients_and_product(
    gate: Tensor, value: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """grad value silu'(gate), grad silu(gate), and silu(gate) value."""
    dtype = accumulation_dtype(gate.dtype)
    a, b, g = (x.to(dtype) for x in (gate, value, grad))
    sigmoid = torch.sigmoid(a)
    silu, derivative = a * sigmoid, sigmoid + a * sigmoid * (1 - sigmoid)
    found = g * b * derivative, g * silu, silu * b
    grad_gate, grad_value, product = (x.to(gate.dtype) for x in found)
    return grad_gate, grad_value, product


def cross_entropy_in_place(
    logits: Tensor,
    targets: Tensor,
    ignore_index: int,
    scale: float,
    with_gradient: bool,
) -> Tensor:
    """-log softmax(logits)[target]; scale (softmax(logits) - onehot(target))."""
    log_probs = logits.to(accumulation_dtype(logits.dtype)).log_softmax(1)
    ignored = (targets == ignore_index)[:, None]
    index = targets[:, None].masked_fill(ignored, 0)
    losses = -log_probs.gather(1, index).masked_fill(ignored, 0)
    if with_gradient:
        onehot = torch.zeros_like(log_probs).scatter(1, index, 1.0)
        logits.copy_((scale * (log_probs.exp() - onehot)).masked_fill(ignored, 0))
    return losses.squeeze(1)
