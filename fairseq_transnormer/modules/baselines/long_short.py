"""Transformer-LS: a window of keys and compressed keys (Zhu et al., 2021).

Letters: B batch, N length, M slots, H heads, D head width, T tiles of Q queries and K
keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...ops.backend import accumulation_dtype, autocast_disabled
from ...ops.inputs import check_state_kind, real_lengths
from ...ops.rows import append_rows, gather_rows, pad_slots, tiles
from ..attention import Attention, LayerConfig
from ..embeddings import SinusoidalPositions
from ..norms import LayerNorm
from ..options import described
from ..registry import register_attention


@dataclass
class LongShortOptions:
    """What can be configured of Transformer-LS alone."""

    long_short_window: int = described(
        64,
        "Transformer-LS: keys that a causal token sees, including its own; in an "
        "encoder, tokens of a segment, which sees half as many on either side",
        at_least=1,
    )
    long_short_chunk_size: int = described(
        32, "Transformer-LS, causal: positions that are compressed together", at_least=1
    )
    long_short_rank: int = described(
        1, "Transformer-LS, causal: compressed keys per chunk and head", at_least=1
    )
    long_short_landmarks: int = described(
        32, "Transformer-LS, encoder: compressed keys per sequence and head", at_least=1
    )
    long_short_memory: bool = described(
        False,
        "Transformer-LS, causal: in training, continue after the previous batch; for "
        "batches whose rows continue each other",
        training_only=True,
    )


class Tokens(NamedTuple):
    """Keys and values, (B, M, H, D), before any norm, and the scores of compression.

    score: (B, M, H, rank).
    """

    key: Tensor
    value: Tensor
    score: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> "Tokens":
        return Tokens(*(change(x) for x in self))


class Compressed(NamedTuple):
    """Keys and values of chunks, (B, chunks * rank, H, D), normed."""

    key: Tensor
    value: Tensor


class LongShortState(NamedTuple):
    """State after ``length`` tokens; ``compressed`` grows by ``rank`` per chunk.

    recent: tokens of the open chunk and of the chunks within the window. The open chunk
        begins at slot M - chunk size.
    compressed: undefined for chunks that a row has not completed.
    length: tokens seen, (B,), int64.
    """

    recent: Tokens
    compressed: Compressed
    length: Tensor


@register_attention("long_short", LongShortOptions)
class LongShortAttention(Attention):
    """One softmax over the keys of a window and compressed keys, times their values.

    Compression: p = softmax of (W_p x) over the tokens of a chunk, with one column per
    head and rank. The compressed key is sum p_j k_j, the value sum p_j v_j. Keys and
    values of the window pass one LayerNorm and compressed ones another (DualLN), heads
    concatenated. A decoder compresses k_j and v_j before the window's norm, an encoder
    after it.

    Causal: token i sees tokens i - window + 1 ... i and all chunks before its own.
    Relative positions are those of Transformer-XL: score = (q + u) . k + (q + w) . r.
    In the window r is a projection of the sinusoids of the distance i - j. For chunks
    it is another projection, of their distance in tokens. There is no n x n matrix, but
    n times as many scores as chunks.

    Encoder: the whole sequence is one chunk of ``long_short_landmarks`` ranks. A
    segment of ``long_short_window`` tokens sees itself and half a window on either
    side. Time is linear in the length; there are no relative positions.

    Args:
        config, causal: see ``Attention``; reads ``LongShortOptions``, and norm_eps for
            the two norms.

    Raises:
        ValueError: long_short_memory with checkpoint_activations or cuda_graphs.
    """

    constant_state = False

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        # a recomputed layer would store its tokens twice; the memory's length is read
        # from the device, for which no CUDA graph can wait
        for other in ("checkpoint_activations", "cuda_graphs"):
            if config.long_short_memory and getattr(config, other):
                raise ValueError(
                    f"long_short_memory=True with {other}=True; allowed: one of them"
                )
        self.window = config.long_short_window
        self.chunk_size = config.long_short_chunk_size
        ranks = config.long_short_landmarks, config.long_short_rank
        self.rank = ranks[causal]
        self.compress_proj = nn.Linear(self.embed_dim, self.num_heads * self.rank)
        self.softmax = JointSoftmax(config, self.rank, causal=causal)
        self.keeps_memory = config.long_short_memory and causal
        self.memory: LongShortState | None = None
        self.initialise()
        # slots before the open chunk that may be within the window
        self.past_slots = -(-(self.window - 1) // self.chunk_size) * self.chunk_size

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        scores = self.compress_proj(x).unflatten(-1, (self.num_heads, self.rank))
        return *super().project(x), scores

    # it also projects the scores
    def attend(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score: Tensor,
        positions: Tensor,
        key_padding_mask: Tensor | None,
        state: LongShortState | None,
        return_state: bool,
    ) -> tuple[Tensor, LongShortState | None]:
        check_state_kind(state, LongShortState)
        remembers = self.keeps_memory and self.training and state is None
        if remembers and self.memory is not None:
            cached = self.memory.recent.key
            if cached.device == key.device and len(cached) == len(key):
                state = self.memory
        with autocast_disabled(query):
            dtype = accumulation_dtype(query.dtype)
            query = query.to(dtype) * self.head_dim**-0.5
            read = Tokens(key, value, score).each(lambda x: x.to(dtype))
            hidden = torch.zeros(key.shape[:2], dtype=torch.bool, device=key.device)
            if key_padding_mask is not None:
                hidden = key_padding_mask
                # a NaN at a pad would pass through a weight of zero
                pads = hidden[:, :, None, None]
                read = read.each(lambda x: x.masked_fill(pads, 0))
            if not self.causal:
                return self._encode(query, read, hidden), None
            added = real_lengths(key, key_padding_mask)
            if state is None:
                keeps = return_state or remembers
                output, state = self._begin(query, read, hidden, added, keeps)
            else:
                output, state = self._continue(query, read, added, state)
        if remembers and state is not None:
            self.memory = self._seen_by_a_window(state)
        return output, state

    def _encode(self, query: Tensor, read: Tokens, hidden: Tensor) -> Tensor:
        half, length = self.window // 2, query.shape[1]
        key, value = normed(self.softmax.window_norm, read.key, read.value)
        compressed = self.softmax.compress(
            Tokens(key, value, read.score), hidden, length
        )
        key, value = (tiles(x, self.window, half, half) for x in (key, value))
        hidden = tiles(hidden, self.window, half, half, True).unsqueeze(2)
        output = self.softmax(self._tiled(query), key, value, hidden, compressed)
        return output[:, :length]

    def _begin(
        self,
        query: Tensor,
        read: Tokens,
        hidden: Tensor,
        added: Tensor,
        return_state: bool,
    ) -> tuple[Tensor, LongShortState | None]:
        """Causal, from the first token."""
        size, past = self.chunk_size, self.past_slots
        compressed = self.softmax.compress(read, hidden, size)
        chunks = torch.arange(query.shape[1], device=query.device)[None] // size
        output = self._windows(query, read, hidden, chunks, compressed)
        if not return_state:
            return output, None
        open_chunk, end = added // size * size, added + past
        padded = read.each(lambda x: F.pad(x, (0, 0, 0, 0, past, 0)))
        recent = padded.each(lambda x: gather_rows(x, open_chunk, end, past + size))
        return output, LongShortState(recent, compressed, added)

    def _continue(
        self, query: Tensor, read: Tokens, added: Tensor, state: LongShortState
    ) -> tuple[Tensor, LongShortState]:
        """Causal, after a state: in a buffer that begins with its tokens."""
        size, past, length = self.chunk_size, self.past_slots, query.shape[1]
        inside = state.length % size
        start = past + inside
        end = start + added
        slots = past + -(-(size - 1 + length) // size) * size
        read = Tokens(
            *(
                append_rows(cached.to(x.dtype), x, start, slots)
                for cached, x in zip(state.recent, read, strict=True)
            )
        )
        # the chunk of slot 0 may be before the first token
        first_chunk = state.length // size - past // size
        slot = torch.arange(slots, device=query.device)
        chunks = first_chunk[:, None] + slot // size
        hidden = (chunks < 0) | (slot >= end[:, None])
        new = self.softmax.compress(
            read.each(lambda x: x[:, past:]), hidden[:, past:], size
        )
        compressed = self._longer(state, new)
        if length == 1:
            distance = start[:, None] - slot
            hidden = hidden | (distance >= self.window) | (distance < 0)
            key, value = normed(self.softmax.window_norm, read.key, read.value)
            output = self.softmax(
                query.unsqueeze(1),
                key.unsqueeze(1),
                value.unsqueeze(1),
                hidden[:, None, None],
                compressed,
                distance[:, None, None],
                chunks.gather(1, start[:, None])[:, None],
            )
        else:
            query = append_rows(None, query, start, slots)
            output = self._windows(query, read, hidden, chunks, compressed)
            output = gather_rows(output, start, start + length, length)
        shift = (inside + added) // size * size
        recent = read.each(lambda x: gather_rows(x, shift, end, past + size))
        return output, LongShortState(recent, compressed, state.length + added)

    def _longer(self, state: LongShortState, new: Compressed) -> Compressed:
        """Compressed keys and values with those of the chunks from the open one on."""
        before = state.length // self.chunk_size * self.rank
        slots = state.compressed.key.shape[1]
        if len(before):  # a batch may be empty
            slots = max(slots, int(before.max()) + new.key.shape[1])
        return Compressed(
            *(
                append_rows(old.to(x.dtype), x, before, slots)
                for old, x in zip(state.compressed, new, strict=True)
            )
        )

    def _seen_by_a_window(self, state: LongShortState) -> LongShortState:
        """The part of a state that a window sees, detached from gradients."""
        past, rank = self.past_slots // self.chunk_size, self.rank
        dropped = (state.length // self.chunk_size - past).clamp(min=0)
        end = torch.full_like(dropped, state.compressed.key.shape[1])
        kept = (
            gather_rows(x, dropped * rank, end, past * rank).detach()
            for x in state.compressed
        )
        length = state.length - dropped * self.chunk_size
        recent = state.recent.each(Tensor.detach)
        return LongShortState(recent, Compressed(*kept), length)

    def _tiled(self, x: Tensor) -> Tensor:
        """(B, M, ...) -> (B, T, window, ...)."""
        return pad_slots(x, self.window).unflatten(1, (-1, self.window))

    def _windows(
        self,
        query: Tensor,
        read: Tokens,
        hidden: Tensor,
        chunks: Tensor,
        compressed: Compressed,
    ) -> Tensor:
        """Causal attention of all slots: (B, M, H, D) -> (B, M, H D).

        chunks: number of the chunk of each slot, (B or 1, M).
        """
        window = self.window
        inside = torch.arange(2 * window, device=query.device)
        distance = inside[window:, None] - inside
        outside = (distance < 0) | (distance >= window)
        hidden = tiles(hidden, window, window, 0, True).unsqueeze(2) | outside
        key, value = normed(self.softmax.window_norm, read.key, read.value)
        output = self.softmax(
            self._tiled(query),
            tiles(key, window, window, 0),
            tiles(value, window, window, 0),
            hidden,
            compressed,
            distance[None, None],
            self._tiled(chunks),
        )
        return output[:, : query.shape[1]]


class JointSoftmax(nn.Module):
    """One softmax over the keys of a window and compressed keys, with DualLN.

    All methods compute in the dtype of their inputs.

    Args:
        config, causal: see ``LongShortAttention``.
        rank: compressed keys per chunk and head.
    """

    def __init__(self, config: LayerConfig, rank: int, *, causal: bool):
        super().__init__()
        width, heads = config.embed_dim, config.num_heads
        self.num_heads, self.head_dim, self.rank = heads, width // heads, rank
        self.window, self.dropout = config.long_short_window, config.attention_dropout
        self.chunk_size = config.long_short_chunk_size
        self.window_norm = LayerNorm(width, config.norm_eps)
        self.long_norm = LayerNorm(width, config.norm_eps)
        if causal:
            self.sinusoids = SinusoidalPositions(width)
            self.distance_proj = nn.Linear(width, width)
            self.chunk_distance_proj = nn.Linear(width, width)
            self.content_bias = nn.Parameter(torch.zeros(heads, self.head_dim))
            self.position_bias = nn.Parameter(torch.zeros(heads, self.head_dim))

    def compress(self, tokens: Tokens, hidden: Tensor, size: int) -> Compressed:
        """Compress chunks of ``size`` tokens, without ``hidden`` ones, bool (B, M)."""
        key, value, score = tokens.each(
            lambda x: pad_slots(x, size).unflatten(1, (-1, size))
        )
        hidden = pad_slots(hidden, size).view(*key.shape[:3], 1, 1)
        score = score.masked_fill(hidden, torch.finfo(score.dtype).min)
        weights = score.softmax(2).masked_fill(hidden, 0)
        weights = weights.permute(0, 1, 3, 4, 2)  # B, chunks, H, rank, size
        means = (weights @ x.transpose(2, 3) for x in (key, value))
        means = (x.transpose(2, 3).flatten(1, 2) for x in means)
        return Compressed(*normed(self.long_norm, *means))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden: Tensor,
        compressed: Compressed,
        distance: Tensor | None = None,
        chunks: Tensor | None = None,
    ) -> Tensor:
        """Attention of queries in tiles.

        Args:
            query: (B, T, Q, H, D).
            key, value: those of the tiles, (B, T, K, H, D).
            hidden: (B, T, Q or 1, K), True where a key of a tile is not seen.
            compressed: for all tiles.
            distance: i - j within the tiles, (B or 1, T or 1, Q, K); causal only.
            chunks: number of the chunk of each query, (B or 1, T, Q); causal only.

        Returns:
            (B, T Q, H D).
        """
        tiles = query.shape[1:3]
        # tiles: B, H, T, Q or K, D; all queries of a row together: B, H, T Q, D
        query, key, value = (x.permute(0, 3, 1, 2, 4) for x in (query, key, value))
        long_key, long_value = (x.transpose(1, 2) for x in compressed)
        content = query
        if distance is not None:
            content_bias, position_bias = (
                self.head_dim**-0.5 * bias.to(query.dtype)[:, None, None]
                for bias in (self.content_bias, self.position_bias)
            )
            content, query = query + content_bias, query + position_bias
        scores = content @ key.transpose(-1, -2)
        # in this order, since torch.compile misreads the layout of a layer norm's
        # gradient if it arrives transposed
        long_scores = long_key @ content.flatten(2, 3).transpose(-1, -2)
        long_scores = long_scores.transpose(-1, -2).unflatten(2, tiles)
        hidden = hidden.unsqueeze(1).expand_as(scores)
        if distance is not None and chunks is not None:
            scores = scores + self._position_scores(
                query, self.distance_proj, self.window, 1, distance
            )
            count = long_key.shape[2] // self.rank
            known = torch.arange(count, device=key.device)
            chunk_distance = (chunks[..., None] - known).repeat_interleave(self.rank, 3)
            projection, size = self.chunk_distance_proj, self.chunk_size
            # a query may be one chunk after the last compressed one
            long_scores = long_scores + self._position_scores(
                query, projection, count + 1, size, chunk_distance
            )
            future = (chunk_distance <= 0).unsqueeze(1).expand_as(long_scores)
            hidden = torch.cat((hidden, future), -1)
        else:
            hidden = F.pad(hidden, (0, long_scores.shape[-1]))
        scores = torch.cat((scores, long_scores), -1)
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).masked_fill(hidden, 0)
        weights = F.dropout(weights, self.dropout, self.training)
        near, far = weights.split((key.shape[3], long_key.shape[2]), -1)
        output = (near @ value).flatten(2, 3) + far.flatten(2, 3) @ long_value
        return output.transpose(1, 2).flatten(2)

    def _position_scores(
        self,
        query: Tensor,
        projection: nn.Linear,
        count: int,
        step: int,
        distance: Tensor,
    ) -> Tensor:
        """q . r at ``distance`` (B or 1, T or 1, Q, K): (B, H, T, Q, K).

        r has ``count`` distances, multiples of ``step``; others are undefined.
        """
        known = torch.arange(count, device=query.device) * step
        sinusoids = self.sinusoids(known).to(query.dtype)
        weight, bias = (x.to(query.dtype) for x in (projection.weight, projection.bias))
        r = F.linear(sinusoids, weight, bias).unflatten(-1, (self.num_heads, -1))
        # (H, D, distances) for queries of all tiles
        scores = query.flatten(2, 3) @ r.permute(1, 2, 0)
        index = distance.clamp(0, count - 1).unsqueeze(1)
        scores = scores.unflatten(2, query.shape[2:4])
        return scores.gather(-1, index.expand(*scores.shape[:-1], -1))


def normed(norm: nn.Module, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Each (B, M, H, D), normed over heads and widths."""
    return tuple(norm(x.flatten(2)).unflatten(2, x.shape[2:]) for x in tensors)
