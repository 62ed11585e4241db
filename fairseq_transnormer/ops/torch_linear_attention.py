"""Linear attention in torch: chunks within segments, and one-token steps.

The sequence is cut into chunks of C tokens. Inside a chunk the scores are computed as
they stand, C x C; what came before enters through the running sum S = sum_j k_j v_j^T.
A segment of chunks is one batch of matrix products, so that the working memory does not
grow with the length; only one S a segment is kept for the backward pass, which
recomputes the rest.

Letters: B batch, H heads, N length, G chunks of a segment, C chunk size, D head width
of queries and keys, E of values.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .attention_inputs import FEATURE_MAPS, real_lengths, zero_pads
from .backend import accumulation_dtype, autocast_disabled, unscaled_output_dtype
from .states import LinearAttentionState

CHUNK_SIZE = 64
CHUNKS_PER_SEGMENT = 16


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
    chunk_size: int = CHUNK_SIZE,
):
    """The torch implementation of ``ops.linear_attention``; chunk_size: tokens."""
    query, key = FEATURE_MAPS[feature_map](query), FEATURE_MAPS[feature_map](key)
    key, value = zero_pads(key, value, key_padding_mask)
    output_dtype = value.dtype if normalize else unscaled_output_dtype(value.dtype)
    if normalize:
        # a column of ones makes the sum of the scores one more value to attend to
        value = F.pad(value, (0, 1), value=1.0)
    if causal:
        state = None if initial_state is None else _joined(initial_state, normalize)
        needs_grad = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in (query, key, value, state)
        )
        if state is not None and query.shape[1] == 1 and not needs_grad:
            output = _step(query, key, value, state)
        else:
            if state is None:
                state = query.new_zeros(
                    (query.shape[0], *key.shape[2:], value.shape[-1]),
                    dtype=accumulation_dtype(query.dtype),
                )
            output, state = _CausalLinearAttention.apply(
                query, key, value, state, chunk_size
            )
    else:
        output = _LinearAttention.apply(query, key, value)
    if normalize:
        output = output[..., :-1] / output[..., -1:].clamp(min=eps)
    output = output.to(output_dtype)
    if not return_state:
        return output
    length = real_lengths(key, key_padding_mask)
    if initial_state is not None:
        length = length + initial_state.length
    return output, _split(state, normalize, length)


def _joined(state: LinearAttentionState, normalize: bool) -> Tensor:
    if not normalize:
        return state.key_value
    return torch.cat((state.key_value, state.key_sum.unsqueeze(-1)), dim=-1)


def _split(state: Tensor, normalize: bool, length: Tensor) -> LinearAttentionState:
    if not normalize:
        return LinearAttentionState(state, None, length)
    return LinearAttentionState(state[..., :-1], state[..., -1], length)


def _step(query: Tensor, key: Tensor, value: Tensor, state: Tensor) -> Tensor:
    """One token: S += k v^T in place, o = q S. (B, 1, H, E), the state's dtype."""
    with autocast_disabled(query):
        q, k, v = (x[:, 0].to(state.dtype) for x in (query, key, value))
        state += k.unsqueeze(-1) * v.unsqueeze(-2)
        return (q.unsqueeze(-2) @ state).transpose(1, 2)


class _CausalLinearAttention(torch.autograd.Function):
    """(query, key, value, state) -> (output, state after the last token).

    The outputs have the accumulation dtype. Saved: the inputs and one state a segment.
    """

    @staticmethod
    def forward(ctx, query, key, value, state, chunk_size):
        with autocast_disabled(query):
            output = state.new_empty((*query.shape[:3], value.shape[-1]))
            starts = []
            for window in _segments(query.shape[1], chunk_size):
                starts.append(state)
                q, k, v = (
                    _chunks(x[:, window], chunk_size, state.dtype)
                    for x in (query, key, value)
                )
                before, state = _states_before(k, v, state)
                scores = (q @ k.transpose(-1, -2)).tril_()
                _write(output[:, window], q @ before + scores @ v)
        ctx.save_for_backward(query, key, value, *starts)
        ctx.chunk_size = chunk_size
        return output, state

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output, grad_state):
        query, key, value, *starts = ctx.saved_tensors
        size, dtype = ctx.chunk_size, grad_state.dtype
        grads = [torch.empty_like(x) for x in (query, key, value)]
        segments = list(zip(_segments(query.shape[1], size), starts, strict=True))
        with autocast_disabled(query):
            # mirrors the forward pass: R = sum_i q_i do_i^T runs from the end
            after = grad_state
            for window, start in reversed(segments):
                q, k, v, do = (
                    _chunks(x[:, window], size, dtype)
                    for x in (query, key, value, grad_output)
                )
                before, _ = _states_before(k, v, start)
                later, after = _states_before(q, do, after, reverse=True)
                scores = (q @ k.transpose(-1, -2)).tril_()
                grad_scores = (do @ v.transpose(-1, -2)).tril_()
                for grad, chunks in zip(
                    grads,
                    (
                        do @ before.transpose(-1, -2) + grad_scores @ k,
                        v @ later.transpose(-1, -2) + grad_scores.transpose(-1, -2) @ q,
                        k @ later + scores.transpose(-1, -2) @ do,
                    ),
                    strict=True,
                ):
                    _write(grad[:, window], chunks)
        return *grads, after, None


class _LinearAttention(torch.autograd.Function):
    """The bidirectional form, o = q (K^T V), in the accumulation dtype."""

    @staticmethod
    def forward(ctx, query, key, value):
        ctx.save_for_backward(query, key, value)
        with autocast_disabled(query):
            q, k, v = (_heads_first(x) for x in (query, key, value))
            return (q @ (k.transpose(-1, -2) @ v)).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        query, key, value = ctx.saved_tensors
        with autocast_disabled(query):
            q, k, v, do = (_heads_first(x) for x in (query, key, value, grad_output))
            key_value = k.transpose(-1, -2) @ v
            grad_key_value = q.transpose(-1, -2) @ do
            grads = (
                do @ key_value.transpose(-1, -2),
                v @ grad_key_value.transpose(-1, -2),
                k @ grad_key_value,
            )
            # torch.compile takes elu's gradient to be contiguous, and fails else
            return tuple(g.transpose(1, 2).to(query.dtype).contiguous() for g in grads)


def _segments(length: int, chunk_size: int) -> list[slice]:
    size = chunk_size * CHUNKS_PER_SEGMENT
    return [slice(i, min(i + size, length)) for i in range(0, length, size)]


def _heads_first(x: Tensor) -> Tensor:
    return x.transpose(1, 2).to(accumulation_dtype(x.dtype))


def _chunks(x: Tensor, chunk_size: int, dtype: torch.dtype) -> Tensor:
    """(B, N, H, D) -> (B, H, G, C, D) with a tail of zeros, which adds nothing."""
    batch, length, heads, width = x.shape
    count = -(-length // chunk_size)
    chunks = x.new_empty((batch, heads, count * chunk_size, width), dtype=dtype)
    chunks[:, :, :length] = x.transpose(1, 2)
    chunks[:, :, length:] = 0
    return chunks.view(batch, heads, count, chunk_size, width)


def _write(target: Tensor, chunks: Tensor) -> None:
    """Copy (B, H, G, C, D) into (B, N, H, D), dropping the tail."""
    target.copy_(chunks.flatten(2, 3)[:, :, : target.shape[1]].transpose(1, 2))


def _states_before(
    k: Tensor, v: Tensor, start: Tensor, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """States (B, H, G, D, E) in front of each chunk, and the one after the last.

    reverse: run from the last chunk to the first.
    """
    updates = k.transpose(-1, -2) @ v
    # on a CPU a cumsum over anything but the last dimension costs as much as the
    # products; on a GPU an addition for each chunk costs more in launches
    sums = _sums_by_addition if updates.device.type == "cpu" else _sums_by_scan
    return sums(updates, start, reverse)


def _sums_by_addition(
    updates: Tensor, start: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """start + what stands in front of each of updates, into updates; the whole sum."""
    chunks = updates.unbind(2)
    for chunk in reversed(chunks) if reverse else chunks:
        after = start + chunk
        chunk.copy_(start)
        start = after
    return updates, start


def _sums_by_scan(
    updates: Tensor, start: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The same in few launches, into new memory."""
    updates = updates.flip(2) if reverse else updates
    sums = torch.cat((start.unsqueeze(2), updates), dim=2).cumsum(2)
    before = sums[:, :, :-1].flip(2) if reverse else sums[:, :, :-1]
    # a clone, since a view would keep the sums of all chunks alive
    return before, sums[:, :, -1].clone()
