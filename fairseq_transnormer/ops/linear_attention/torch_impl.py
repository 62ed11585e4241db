"""Linear attention in torch: chunks within segments, and one-token steps.

The sequence is cut into chunks of C tokens. Inside a chunk the scores are computed as
they stand, C x C. What came before enters through the running sum S = sum_j k_j v_j^T.
A tile of some rows and chunks (chunks.py) is computed at one time, so that the working
memory does not grow with the length. One S a segment of chunks is kept for the backward
pass, which recomputes the rest.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values. C is
the chunk size; a tile has R rows and G chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..backend import (
    accumulation_dtype,
    autocast_disabled,
    needs_gradient,
    unscaled_output_dtype,
)
from ..derivatives import once_differentiable
from ..feature_maps import FEATURE_MAPS
from ..inputs import check_memory_of_rows, real_lengths, zero_pads
from ..states import LinearAttentionState
from .chunks import CHUNK_SIZE, ChunkedTarget, Tiling, in_chunks, matrices
from .options import Options


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: Options,
    chunk_size: int = CHUNK_SIZE,
) -> tuple[Tensor, LinearAttentionState | None]:
    """The torch implementation of ``ops.linear_attention``; chunk_size: tokens."""
    normalize, mask = options.normalize, options.key_padding_mask
    phi, before = FEATURE_MAPS[options.feature_map], options.initial_state
    query, key = phi(query), phi(key)
    key, value = zero_pads(key, value, mask)
    output_dtype = value.dtype if normalize else unscaled_output_dtype(value.dtype)
    start = None if before is None else before.length
    if before is not None and options.is_step(query, key, value):
        sums = before.key_value, before.key_sum if normalize else None
        output = _step(query, key, value, *sums, options.eps).to(output_dtype)
        if not options.return_state:
            return output, None
        return output, LinearAttentionState(*sums, real_lengths(key, mask, start))
    if normalize:
        # a column of ones makes the sum of the scores one more value to attend to
        value = F.pad(value, (0, 1), value=1.0)
    state = None
    if options.causal:
        if before is not None:
            state = _joined(before, normalize)
        output, state = _continued(query, key, value, state, chunk_size)
    else:
        output = _LinearAttention.apply(query, key, value)
    if normalize:
        output = output[..., :-1] / output[..., -1:].clamp(min=options.eps)
    output = output.to(output_dtype)
    if not options.return_state or state is None:
        return output, None
    return output, _split(state, normalize, real_lengths(key, mask, start))


def _continued(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor | None, chunk_size: int
) -> tuple[Tensor, Tensor]:
    """Output and state of the causal form after a state, which may be None."""
    differentiated = needs_gradient(query, key, value, state)
    if state is None:
        state = query.new_zeros(
            (query.shape[0], *key.shape[2:], value.shape[-1]),
            dtype=accumulation_dtype(query.dtype),
        )
    elif not differentiated:
        # it is written into
        state = state.clone(memory_format=torch.contiguous_format)
    if differentiated:
        return _CausalLinearAttention.apply(query, key, value, state, chunk_size)
    tiling = Tiling.of(query, value, chunk_size)
    return _causal(query, key, value, state, tiling)


def _joined(state: LinearAttentionState, normalize: bool) -> Tensor:
    if not normalize or state.key_sum is None:
        return state.key_value
    return torch.cat((state.key_value, state.key_sum.unsqueeze(-1)), dim=-1)


def _split(state: Tensor, normalize: bool, length: Tensor) -> LinearAttentionState:
    if not normalize:
        return LinearAttentionState(state, None, length)
    return LinearAttentionState(state[..., :-1], state[..., -1], length)


def _step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: Tensor,
    key_sum: Tensor | None,
    eps: float,
) -> Tensor:
    """One token: S += k v^T and z += k in place, o = q S, over q z where there is one.

    (B, 1, H, E), the state's dtype.
    """
    for tensor in (state, key_sum):
        if tensor is not None and not tensor.is_contiguous():
            check_memory_of_rows(tensor)
    batch, heads, width, value_width = state.shape
    with autocast_disabled(query):
        # a matrix a head of each row: the fewest calls, of which each costs more than
        # its numbers
        one = batch < 2 or heads < 2 or state.stride(0) == heads * state.stride(1)
        held = state if one else state.contiguous()
        sums = held.view(batch * heads, width, value_width)
        q, k, v = (x.to(state.dtype) for x in (query, key, value))
        sums.baddbmm_(
            k.reshape(len(sums), width, 1), v.reshape(len(sums), 1, value_width)
        )
        if held is not state:
            state.copy_(held)
        output = torch.bmm(q.reshape(len(sums), 1, width), sums)
        output = output.view(batch, 1, heads, value_width)
        if key_sum is None:
            return output
        key_sum += k[:, 0]
        total = (q[:, 0] * key_sum).sum(-1, keepdim=True)
        return output / total.clamp(min=eps).unsqueeze(1)


class _CausalLinearAttention(torch.autograd.Function):
    """(query, key, value, state) -> (output, state after the last token).

    The outputs have the accumulation dtype. Saved: the inputs and one state a segment.
    """

    @staticmethod
    def forward(ctx, query, key, value, state, chunk_size):
        tiling = Tiling.of(query, value, chunk_size)
        starts = []
        output, state = _causal(query, key, value, state, tiling, starts)
        ctx.save_for_backward(query, key, value, *starts)
        ctx.tiling = tiling
        return output, state

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output, grad_state):
        query, key, value, *starts = ctx.saved_tensors
        tiling, dtype = ctx.tiling, grad_state.dtype
        grads = [torch.empty_like(x) for x in (query, key, value)]
        segments = list(zip(tiling.segments(), starts, strict=True))
        with autocast_disabled(query):
            # mirrors the forward pass: R = sum_i q_i do_i^T runs from the end
            for segment, start in reversed(segments):
                grad_after, grad_state = grad_state, torch.empty_like(grad_state)
                tiles = tiling.tiles(segment)
                for rows in tiling.rows():
                    inputs = [
                        in_chunks(x[rows, segment], tiling.chunk_size)
                        for x in (query, key, value, grad_output)
                    ]
                    targets = [
                        ChunkedTarget(x[rows, segment], tiling.chunk_size)
                        for x in grads
                    ]
                    before, state = [], start[rows].flatten(0, 1)
                    for tile in tiles:
                        k, v = (matrices(x[tile], dtype) for x in inputs[1:3])
                        states, state = _states_before(k, v, state)
                        before.append(states)
                    del k, v
                    after = grad_after[rows].flatten(0, 1)
                    for tile in reversed(tiles):
                        parts = (x[tile] for x in inputs)
                        after = _backward(*parts, before.pop(), after, tile, targets)
                    for target in targets:
                        target.finish()
                    grad_state[rows] = after.view(grad_state[rows].shape)
        return *grads, grad_state, None


def _causal(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: Tensor,
    tiling: Tiling,
    starts: list[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The output, in the state's dtype, and the state after the last token.

    starts: a list that is given the state in front of each segment. Without one there
        is only one state: the given one, contiguous, is written into.
    """
    output = state.new_empty((*query.shape[:3], value.shape[-1]))
    with autocast_disabled(query):
        for segment in tiling.segments():
            if starts is not None:
                starts.append(state)
                state = state.clone(memory_format=torch.contiguous_format)
            for rows in tiling.rows():
                inputs = [
                    in_chunks(x[rows, segment], tiling.chunk_size)
                    for x in (query, key, value)
                ]
                target = ChunkedTarget(output[rows, segment], tiling.chunk_size)
                sums = state[rows].view(-1, *state.shape[2:])
                for tile in tiling.tiles(segment):
                    q, k, v = (x[tile] for x in inputs)
                    target.write(tile, _output(q, k, v, sums))
                target.finish()
    return output, state


# Functions, so that what a tile needed is gone when the next one begins.


def _output(q: Tensor, k: Tensor, v: Tensor, state: Tensor) -> Tensor:
    """Of a tile, (GRH, C, E); q, k, v: (G, R, H, C, D or E).

    state: (RH, D, E), in front of the tile; becomes the one after it.
    """
    dtype = state.dtype
    k = matrices(k, dtype)
    if len(k) == len(state):
        # one chunk: what a step no longer needs makes room for the next one's
        q = matrices(q, dtype)
        scores, output = torch.bmm(q, k.mT).tril_(), torch.bmm(q, state)
        del q
        v = matrices(v, dtype)
        state.baddbmm_(k.mT, v)
        return output.baddbmm_(scores, v)
    q, v = matrices(q, dtype), matrices(v, dtype)
    before, after = _states_before(k, v, state)
    state.copy_(after)
    return torch.bmm(q, before).baddbmm_(torch.bmm(q, k.mT).tril_(), v)


def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    do: Tensor,
    before: Tensor,
    after: Tensor,
    tile: slice,
    targets: Sequence[ChunkedTarget],
) -> Tensor:
    """Write a tile's gradients of q, k and v; the gradient of the state before it."""
    q, k, v, do = (matrices(x, after.dtype) for x in (q, k, v, do))
    later, after = _states_before(q, do, after, reverse=True)
    scores = torch.bmm(do, v.mT).tril_()
    targets[0].write(tile, torch.bmm(do, before.mT).baddbmm_(scores, k))
    targets[1].write(tile, torch.bmm(v, later.mT).baddbmm_(scores.mT, q))
    scores = torch.bmm(q, k.mT, out=scores).tril_()
    targets[2].write(tile, torch.bmm(k, later).baddbmm_(scores.mT, do))
    return after


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


def _heads_first(x: Tensor) -> Tensor:
    return x.transpose(1, 2).to(accumulation_dtype(x.dtype))


def _states_before(
    k: Tensor, v: Tensor, start: Tensor, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """States (GRH, D, E) in front of each chunk, and the one after all, (RH, D, E).

    k: (GRH, C, D); v: (GRH, C, E). reverse: run from the last chunk to the first.
    """
    if k.shape[0] == start.shape[0]:
        return start, torch.baddbmm(start, k.mT, v)
    # on a CPU a cumsum costs as much as the products; on a GPU an addition for each
    # chunk costs more in launches, but its cumsum is not deterministic
    by_addition = k.device.type == "cpu" or torch.are_deterministic_algorithms_enabled()
    sums = _sums_by_addition if by_addition else _sums_by_scan
    by_chunk = (-1, start.shape[0])
    before, after = sums(
        k.mT.unflatten(0, by_chunk), v.unflatten(0, by_chunk), start, reverse
    )
    return before.flatten(0, 1), after


def _sums_by_addition(
    k: Tensor, v: Tensor, start: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """start + the products k v in front of each chunk, (G, RH, D, E); the whole sum.

    k: (G, RH, D, C); v: (G, RH, C, E).
    """
    sums = start.new_empty((k.shape[0] + 1, *start.shape))
    chunks = [*zip(k.unbind(), v.unbind(), strict=True)]
    states = sums.unbind()
    if reverse:
        chunks, states = chunks[::-1], states[::-1]
    states[0].copy_(start)
    for i, (k, v) in enumerate(chunks):
        torch.baddbmm(states[i], k, v, out=states[i + 1])
    return sums[1:] if reverse else sums[:-1], states[-1]


def _sums_by_scan(
    k: Tensor, v: Tensor, start: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The same in few launches."""
    updates = k @ v
    updates = updates.flip(0) if reverse else updates
    sums = torch.cat((start.unsqueeze(0), updates)).cumsum(0)
    return sums[:-1].flip(0) if reverse else sums[:-1], sums[-1]
