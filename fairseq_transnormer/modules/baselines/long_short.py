"""Transformer-LS: a window of keys beside compressed ones (Zhu et al., 2021)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...ops.attention_inputs import check_state_kind, real_lengths, zero_pads
from ...ops.backend import accumulation_dtype, autocast_disabled
from ...ops.rows import append_rows, gather_rows, pad_slots, tiles
from ..attention import QKV_GAIN_OF_FAIRSEQ, Attention
from ..embeddings import SinusoidalPositions
from ..norms import LayerNorm
from ..options import described
from ..registry import register_attention


@dataclass
class LongShortOptions:
    """What can be configured of Transformer-LS alone."""

    long_short_window: int = described(
        64,
        "Transformer-LS: keys that a causal token sees, its own included; in an "
        "encoder, tokens of a segment, which sees half as many on either side",
        at_least=1,
    )
    long_short_chunk_size: int = described(
        32, "Transformer-LS, causal: positions that are compressed together", at_least=1
    )
    long_short_rank: int = described(
        1, "Transformer-LS, causal: compressed keys a chunk and head", at_least=1
    )
    long_short_landmarks: int = described(
        32, "Transformer-LS, encoder: compressed keys a sequence and head", at_least=1
    )
    long_short_memory: bool = described(
        False,
        "Transformer-LS, causal: in training, continue after the batch before; for "
        "batches whose rows continue each other",
        training_only=True,
    )


class LongShortState(NamedTuple):
    """State after ``length`` tokens; it grows by one entry of ``long_key`` a chunk.

    key: keys of the open chunk and of the chunks that the window reaches into, (B, S,
        H, D), before any norm. The open chunk begins at slot S - chunk size.
    value: (B, S, H, D).
    score: what the compression weights are made of, (B, S, H, rank).
    long_key: compressed keys, (B, chunks * rank, H, D); those of chunks that a row has
        not completed mean nothing.
    long_value: (B, chunks * rank, H, D).
    length: tokens seen, (B,), int64.
    """

    key: Tensor
    value: Tensor
    score: Tensor
    long_key: Tensor
    long_value: Tensor
    length: Tensor

    def as_memory(self, chunk_size: int) -> "LongShortState":
        """What a window sees of it, as if the row began there; without gradients."""
        rank, past = self.score.shape[-1], self.key.shape[1] // chunk_size - 1
        dropped = (self.length // chunk_size - past).clamp(min=0)
        end = self.length.new_full((), self.long_key.shape[1]).expand_as(dropped)
        long_key, long_value = (
            gather_rows(x, dropped * rank, end, past * rank)
            for x in (self.long_key, self.long_value)
        )
        length = self.length - dropped * chunk_size
        kept = (*self[:3], long_key, long_value, length)
        return LongShortState(*(x.detach() for x in kept))

    def fits(self, key: Tensor) -> bool:
        """Whether tokens with these keys, (B, N, H, D), can continue it."""
        return self.key.device == key.device and len(self.key) == len(key)


@register_attention("long_short", LongShortOptions)
class LongShortAttention(Attention):
    """softmax over [keys of a window, compressed keys] in one, times their values.

    Compression: p = softmax of (W_p x) over the tokens of a chunk, a column a head and
    rank; the compressed key is sum p_j k_j, the value sum p_j v_j. Keys and values of
    the window pass one LayerNorm and compressed ones another (DualLN), heads
    concatenated. A decoder compresses k_j and v_j as they are, an encoder those after
    the window's norm.

    Causal: token i sees tokens i - window + 1 ... i and the chunks that ended before
    its own began, with relative positions as in Transformer-XL: score = (q + u) . k +
    (q + w) . r, where r is a projection of the sinusoids of the distance i - j, and
    another projection of those of the distance between the chunks, in tokens. There is
    no n x n matrix, but n times as many scores as chunks.

    Encoder: the whole sequence is one chunk of ``landmarks`` ranks; a segment of
    ``window`` tokens sees itself and half a window on either side. Linear in the
    length; no relative positions.

    Args:
        embed_dim, num_heads, causal: see ``Attention``.
        window, chunk_size, rank, landmarks, memory: see ``LongShortOptions``.
        dropout: probability with which an attention weight is dropped in training.
        norm_eps: of the two norms.
    """

    constant_state = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool,
        window: int = 64,
        chunk_size: int = 32,
        rank: int = 1,
        landmarks: int = 32,
        memory: bool = False,
        dropout: float = 0.0,
        norm_eps: float = 1e-5,
    ):
        super().__init__(embed_dim, num_heads, causal=causal)
        self.window, self.chunk_size = window, chunk_size
        self.rank = rank if causal else landmarks
        self.compress_proj = nn.Linear(embed_dim, num_heads * self.rank)
        self.softmax = JointSoftmax(
            embed_dim,
            num_heads,
            causal=causal,
            window=window,
            chunk_size=chunk_size,
            rank=self.rank,
            dropout=dropout,
            norm_eps=norm_eps,
        )
        self.keeps_memory = memory and causal
        self.memory: LongShortState | None = None
        self.initialise(qkv_gain=QKV_GAIN_OF_FAIRSEQ)
        # slots that the window may reach into in front of the open chunk
        self.past_slots = -(-(window - 1) // chunk_size) * chunk_size

    @classmethod
    def from_config(cls, config: Any, *, causal: bool) -> "LongShortAttention":
        if config.long_short_memory and config.checkpoint_activations:
            raise ValueError(
                "long_short_memory=True with checkpoint_activations=True; allowed: one "
                "of them, since a layer that is run twice would remember twice"
            )
        return cls(
            config.embed_dim,
            config.num_heads,
            causal=causal,
            window=config.long_short_window,
            chunk_size=config.long_short_chunk_size,
            rank=config.long_short_rank,
            landmarks=config.long_short_landmarks,
            memory=config.long_short_memory,
            dropout=config.attention_dropout,
            norm_eps=config.norm_eps,
        )

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        scores = self.compress_proj(x).unflatten(-1, (self.num_heads, self.rank))
        return *super().project(x), scores

    # it projects the scores besides
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
        if remembers and self.memory is not None and self.memory.fits(key):
            state = self.memory
        with autocast_disabled(query):
            dtype = accumulation_dtype(query.dtype)
            query = query.to(dtype) * self.head_dim**-0.5
            key, value = zero_pads(key.to(dtype), value.to(dtype), key_padding_mask)
            score = score.to(dtype)
            if key_padding_mask is not None:
                # a NaN at a pad would pass through a weight of zero
                score = score.masked_fill(key_padding_mask[:, :, None, None], 0)
            if not self.causal:
                return self._encode(query, key, value, score, key_padding_mask), None
            inputs = (query, key, value, score)
            added = real_lengths(key, key_padding_mask)
            if state is None:
                output, state = self._begin(
                    *inputs, added, key_padding_mask, return_state or remembers
                )
            else:
                output, state = self._continue(
                    *inputs, added, state, one=key.shape[1] == 1
                )
        if remembers and state is not None:
            self.memory = state.as_memory(self.chunk_size)
        return output, state

    def _encode(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score: Tensor,
        key_padding_mask: Tensor | None,
    ) -> Tensor:
        half, length = self.window // 2, key.shape[1]
        key, value = self.softmax.normed(key, value)
        long_key, long_value = self.softmax.compress(
            key, value, score, key_padding_mask, length
        )
        hidden = torch.zeros(key.shape[:2], dtype=torch.bool, device=key.device)
        if key_padding_mask is not None:
            hidden = key_padding_mask
        output = self.softmax(
            pad_slots(query, self.window).unflatten(1, (-1, self.window)),
            tiles(key, self.window, half, half),
            tiles(value, self.window, half, half),
            tiles(hidden, self.window, half, half, True).unsqueeze(2),
            long_key,
            long_value,
        )
        return output[:, :length]

    def _begin(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score: Tensor,
        added: Tensor,
        key_padding_mask: Tensor | None,
        return_state: bool,
    ) -> tuple[Tensor, LongShortState | None]:
        """Causal, from the first token on."""
        length, size = key.shape[1], self.chunk_size
        long_key, long_value = self.softmax.compress(
            key, value, score, key_padding_mask, size
        )
        slots = torch.arange(length, device=key.device)[None]
        output = self._windows(
            query, key, value, key_padding_mask, slots // size, long_key, long_value
        )
        if not return_state:
            return output, None
        start, end = added // size * size, added + self.past_slots

        def recent(x: Tensor) -> Tensor:
            x = F.pad(x, (0, 0, 0, 0, self.past_slots, 0))
            return gather_rows(x, start, end, self.past_slots + size)

        key, value, score = (recent(x) for x in (key, value, score))
        return output, LongShortState(key, value, score, long_key, long_value, added)

    def _continue(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score: Tensor,
        added: Tensor,
        state: LongShortState,
        one: bool,
    ) -> tuple[Tensor, LongShortState]:
        """Causal, after a state; ``one``: a single token a row."""
        size, past = self.chunk_size, self.past_slots
        length = key.shape[1]
        inside = state.length % size
        start = past + inside
        slots = past + -(-(size - 1 + length) // size) * size
        key, value, score = (
            append_rows(cached.to(x.dtype), x, start, slots)
            for cached, x in zip(state[:3], (key, value, score), strict=True)
        )
        end = start + added
        # the chunk that slot 0 belongs to may be in front of the first token
        first_chunk = state.length // size - past // size
        index = torch.arange(slots, device=key.device)
        chunks = first_chunk[:, None] + index // size
        hidden = (chunks < 0) | (index >= end[:, None])
        k, v, s, h = (x[:, past:] for x in (key, value, score, hidden))
        long_key, long_value = self._longer(
            state, *self.softmax.compress(k, v, s, h, size)
        )
        if one:
            output = self._one(
                query, key, value, hidden, start, chunks, long_key, long_value
            )
        else:
            query = append_rows(None, query, start, slots)
            output = self._windows(
                query, key, value, hidden, chunks, long_key, long_value
            )
            output = gather_rows(output, start, start + length, length)
        shift = (inside + added) // size * size
        key, value, score = (
            gather_rows(x, shift, end, past + size) for x in (key, value, score)
        )
        seen = state.length + added
        return output, LongShortState(key, value, score, long_key, long_value, seen)

    def _longer(
        self, state: LongShortState, new_key: Tensor, new_value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compressed keys and values with those of the chunks from the open one on."""
        before = state.length // self.chunk_size * self.rank
        slots = state.long_key.shape[1]
        # a batch may be empty
        if len(before):
            slots = max(slots, int(before.max()) + new_key.shape[1])
        return (
            append_rows(state.long_key.to(new_key.dtype), new_key, before, slots),
            append_rows(state.long_value.to(new_key.dtype), new_value, before, slots),
        )

    def _windows(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden: Tensor | None,
        chunks: Tensor,
        long_key: Tensor,
        long_value: Tensor,
    ) -> Tensor:
        """Attention of all slots: (B, M, H, D) -> (B, M, H D).

        chunks: number of the chunk of each slot, (B or 1, M).
        """
        length, window = key.shape[1], self.window
        key, value = self.softmax.normed(key, value)
        inside = torch.arange(2 * window, device=key.device)
        distance = inside[window:, None] - inside
        outside = (distance < 0) | (distance >= window)
        if hidden is None:
            hidden = torch.zeros(key.shape[:2], dtype=torch.bool, device=key.device)
        hidden = tiles(hidden, window, window, 0, True).unsqueeze(2)
        output = self.softmax(
            pad_slots(query, window).unflatten(1, (-1, window)),
            tiles(key, window, window, 0),
            tiles(value, window, window, 0),
            hidden | outside,
            long_key,
            long_value,
            distance[None, None],
            pad_slots(chunks, window).unflatten(1, (-1, window)),
        )
        return output[:, :length]

    def _one(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden: Tensor,
        slot: Tensor,
        chunks: Tensor,
        long_key: Tensor,
        long_value: Tensor,
    ) -> Tensor:
        """Attention of the token in ``slot``, (B,), to all slots of the buffer."""
        key, value = self.softmax.normed(key, value)
        distance = slot[:, None] - torch.arange(key.shape[1], device=key.device)
        hidden = hidden | (distance >= self.window) | (distance < 0)
        return self.softmax(
            query.unsqueeze(1),
            key.unsqueeze(1),
            value.unsqueeze(1),
            hidden[:, None, None],
            long_key,
            long_value,
            distance[:, None, None],
            chunks.gather(1, slot[:, None])[:, None],
        )


class JointSoftmax(nn.Module):
    """One softmax over the keys of a window and compressed keys, with DualLN.

    All methods compute in the dtype of their inputs.

    Args:
        embed_dim, num_heads, causal: see ``Attention``.
        window, chunk_size: see ``LongShortOptions``.
        rank: compressed keys a chunk and head.
        dropout: probability with which a weight is dropped in training.
        norm_eps: of the two norms.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool,
        window: int,
        chunk_size: int,
        rank: int,
        dropout: float,
        norm_eps: float,
    ):
        super().__init__()
        self.causal, self.num_heads, self.rank = causal, num_heads, rank
        self.window, self.chunk_size, self.dropout = window, chunk_size, dropout
        self.head_dim = embed_dim // num_heads
        self.window_norm = LayerNorm(embed_dim, norm_eps)
        self.long_norm = LayerNorm(embed_dim, norm_eps)
        if causal:
            self.sinusoids = SinusoidalPositions(embed_dim, padding_idx=-1)
            self.distance_proj = nn.Linear(embed_dim, embed_dim)
            self.chunk_distance_proj = nn.Linear(embed_dim, embed_dim)
            self.content_bias = nn.Parameter(torch.zeros(num_heads, self.head_dim))
            self.position_bias = nn.Parameter(torch.zeros(num_heads, self.head_dim))

    def normed(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of windows, (B, M, H, D) each, after their norm."""
        return self._normed(self.window_norm, key, value)

    def compress(
        self,
        key: Tensor,
        value: Tensor,
        score: Tensor,
        hidden: Tensor | None,
        size: int,
    ) -> tuple[Tensor, Tensor]:
        """Chunks of ``size`` tokens to (B, chunks * rank, H, D) each, normed."""
        key, value, score = (
            pad_slots(x, size).unflatten(1, (-1, size)) for x in (key, value, score)
        )
        if hidden is not None:
            hidden = pad_slots(hidden, size).view(*key.shape[:3], 1, 1)
            score = score.masked_fill(hidden, torch.finfo(score.dtype).min)
        weights = score.softmax(2)
        if hidden is not None:
            weights = weights.masked_fill(hidden, 0)
        weights = weights.permute(0, 1, 3, 4, 2)  # B, G, H, rank, size
        return self._normed(
            self.long_norm,
            *(
                (weights @ x.transpose(2, 3)).transpose(2, 3).flatten(1, 2)
                for x in (key, value)
            ),
        )

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden: Tensor,
        long_key: Tensor,
        long_value: Tensor,
        distance: Tensor | None = None,
        chunks: Tensor | None = None,
    ) -> Tensor:
        """Attention of queries in tiles.

        Args:
            query: (B, T, Q, H, D), T tiles of Q queries.
            key, value: those of the tiles, (B, T, K, H, D).
            hidden: (B, T, Q or 1, K), True where a key of a tile is not seen.
            long_key, long_value: (B, L, H, D), for all tiles.
            distance: i - j within the tiles, (B or 1, T or 1, Q, K); causal only.
            chunks: number of the chunk of each query, (B or 1, T, Q); causal only.

        Returns:
            (B, T Q, H D).
        """
        tiles = query.shape[1:3]
        # tiles: B, H, T, Q or K, D; all queries of a row together: B, H, T Q, D
        query, key, value = (x.permute(0, 3, 1, 2, 4) for x in (query, key, value))
        long_key, long_value = long_key.transpose(1, 2), long_value.transpose(1, 2)
        scale, content = self.head_dim**-0.5, query
        if self.causal:
            content_bias, position_bias = (
                scale * bias.to(query.dtype)[:, None, None]
                for bias in (self.content_bias, self.position_bias)
            )
            content, query = query + content_bias, query + position_bias
        scores = content @ key.transpose(-1, -2)
        # in this order, since torch.compile mistakes the layout of a layer norm's
        # gradient where it arrives transposed
        long_scores = long_key @ content.flatten(2, 3).transpose(-1, -2)
        long_scores = long_scores.transpose(-1, -2).unflatten(2, tiles)
        hidden = hidden.unsqueeze(1).expand_as(scores)
        if self.causal:
            if distance is None or chunks is None:
                raise TypeError(
                    "distance or chunks missing; causal attention needs both"
                )
            scores = scores + self._position_scores(
                query, self.distance_proj, self.window, 1, distance
            )
            count = long_key.shape[2] // self.rank
            known = torch.arange(count, device=key.device)
            chunk_distance = (chunks[..., None] - known).repeat_interleave(self.rank, 3)
            # a query may stand one chunk after the last that is compressed
            long_scores = long_scores + self._position_scores(
                query,
                self.chunk_distance_proj,
                count + 1,
                self.chunk_size,
                chunk_distance,
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

        r stands for ``count`` distances, multiples of ``step``; others get any.
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

    def _normed(
        self, norm: nn.Module, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Both (B, M, H, D) normed over heads and widths."""
        return tuple(
            norm(x.flatten(2)).unflatten(2, (self.num_heads, -1)) for x in (key, value)
        )
