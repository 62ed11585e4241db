"""Causal linear attention in the five forms of "Linear Transformers Are Faster".

Buckman and Gelada (Manifest AI, January 2024) write them for one head; here they have
leading batch dimensions and gradients, and are otherwise as plain as there. All compute

    y_i = sum over j <= i of (q_i . k_j) v_j

for q, k, v of shape (..., t, d), any floating dtype, which is also that of all sums.
They follow the post's equations where its listings slip: its loop over j stops before
i, and its S_i Q_i needs the transpose of what its loop adds up.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def attention_loop(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """LT_attention: two loops. O(t^2 d), and t^2 steps one after the other."""
    outputs = []
    for i in range(q.shape[-2]):
        q_i = q[..., i, :]
        y_i = torch.zeros_like(v[..., i, :])
        for j in range(i + 1):
            a_ij = (q_i * k[..., j, :]).sum(-1, keepdim=True)  # O(d)
            y_i = y_i + a_ij * v[..., j, :]  # O(d)
        outputs.append(y_i)
    return torch.stack(outputs, dim=-2)


def state_loop(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """LT_state: a recurrent network with a (d, d) state. O(t d^2), t steps."""
    state = torch.zeros_like(_outer(k[..., 0, :], v[..., 0, :]))
    outputs = []
    for i in range(q.shape[-2]):
        # out of place, since the backward pass needs each state
        state = state + _outer(k[..., i, :], v[..., i, :])  # O(d^2)
        outputs.append(_times(q[..., i, :], state))  # O(d^2)
    return torch.stack(outputs, dim=-2)


def attention_parallel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """LT_attention_parallel_no_flash: the t x t matrix at once. O(t^2 d)."""
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=q.dtype, device=q.device).tril()
    scores = q @ k.transpose(-1, -2)  # O(t^2 d)
    return (scores * mask) @ v  # O(t^2) and O(t^2 d)


def state_parallel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """LT_state_parallel: all t states at once, by a cumulative sum. O(t d^2)."""
    states = _outer(k, v).cumsum(-3)  # (..., t, d, d)
    return _times(q, states)  # O(t d^2)


def chunked(q: Tensor, k: Tensor, v: Tensor, chunk_size: int) -> Tensor:
    """LT_chunked: a state for each chunk, attention within. O(t d^2 + t c d).

    Unlike the post's, the last chunk may be short: zeros fill it.
    """
    t = q.shape[-2]
    tail = -t % chunk_size
    # (..., t / c, c, d)
    q, k, v = (
        F.pad(x, (0, 0, 0, tail)).unflatten(-2, (-1, chunk_size)) for x in (q, k, v)
    )
    updates = k.transpose(-1, -2) @ v  # O(t d^2)
    before = updates.cumsum(-3) - updates  # O((t / c) d^2)
    y = q @ before + attention_parallel(q, k, v)  # O(t d^2 + t c d)
    return y.flatten(-3, -2)[..., :t, :]


def state_step(q: Tensor, k: Tensor, v: Tensor, state: Tensor) -> Tensor:
    """One token in sampling: adds to the state (..., d, d) in place. O(d^2)."""
    state += _outer(k, v)
    return _times(q, state)


def _outer(k: Tensor, v: Tensor) -> Tensor:
    """(..., d) and (..., d) -> (..., d, d)."""
    return k.unsqueeze(-1) * v.unsqueeze(-2)


def _times(q: Tensor, state: Tensor) -> Tensor:
    """(..., d) times (..., d, d)."""
    return (q.unsqueeze(-2) @ state).squeeze(-2)
