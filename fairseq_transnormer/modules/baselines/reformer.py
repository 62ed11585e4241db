"""Reformer: attention among tokens with equal hashes (Kitaev et al., 2020).

Letters: B batch, N length, H heads, R rounds of hashing, D head width, W chunk size. S
is the number of slots for the tokens of a round, a multiple of W.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops import KeyValueState
from ...ops.backend import accumulation_dtype, autocast_disabled
from ...ops.inputs import check_state_kind, real_lengths, zero_pads
from ...ops.rows import tiles
from ..attention import Attention, LayerConfig
from ..float32 import Float32Module, exact_dtype
from ..options import described
from ..registry import register_attention

# score of a token with itself: it counts only if the token sees nothing else
SELF_SCORE = -1e5


@dataclass
class ReformerOptions:
    """What can be configured of Reformer alone."""

    reformer_chunk_size: int = described(
        64,
        "Reformer: tokens of a chunk of the sorted row; in a causal model, of a bucket",
        at_least=1,
    )
    reformer_hashes: int = described(2, "Reformer: rounds of hashing", at_least=1)
    reformer_buckets: int = described(
        128,
        "Reformer: buckets, an even number; in an encoder the maximum, since short "
        "rows have fewer",
        at_least=2,
    )


class Rotations(Float32Module):
    """h(x) = argmax [x R; -x R] with random R for each round and head.

    R is a buffer, drawn when the module is built and saved with it.

    Args:
        rounds, heads, width: of the input, (B, N, heads, width).
        buckets: their maximum, an even number.
    """

    directions: Tensor

    def __init__(self, rounds: int, heads: int, width: int, buckets: int):
        super().__init__()
        shape = (rounds, heads, width, buckets // 2)
        self.register_buffer("directions", torch.randn(shape, dtype=exact_dtype()))

    @torch.no_grad()
    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        """Numbers of the buckets, (B, H, rounds, N) int64.

        Args:
            x: (B, N, H, width).
            pairs: how many of the directions each row uses, (B,).
        """
        self.check_float32(self.directions)
        with autocast_disabled(x):
            dtype = accumulation_dtype(x.dtype)
            rotated = torch.einsum(
                "bnhd,rhde->bhrne", x.to(dtype), self.directions.to(dtype)
            )
        both = torch.cat((rotated, -rotated), -1)
        known = rotated.shape[-1]
        direction = torch.arange(2 * known, device=x.device) % known
        unused = (direction >= pairs[:, None])[:, None, None, None]
        return both.masked_fill(unused, -torch.inf).argmax(-1)


class Layout(NamedTuple):
    """The order of the tokens in each head and round, and their chunks.

    place: the slot of each token, int64 (B, H, R, N).
    chunk: number of each slot's chunk, int64 (B, H, R, S), or (B, 1, 1, S) for all. A
        token sees chunks of its own number and the one below. Slots without a token
        have 0, those with a token at least 2.
    """

    place: Tensor
    chunk: Tensor


@register_attention("reformer", ReformerOptions)
class ReformerAttention(Attention):
    """softmax over q_i . q_j / |q_j|, j in the chunk of i and in the one before it.

    A token sees itself only if it sees no other. The rounds of hashing are weighted by
    their sums of exp(score). Queries are the keys: there is no projection of keys.
    Time grows as n log n, memory as n.

    In an encoder a row's tokens are sorted by bucket, then by position, and divided
    into chunks. A row of n tokens has at least 2 buckets and at most ``buckets``. In
    between, their number is the largest power of two up to 2 n / chunk size.

    In a causal model each bucket's tokens are divided into chunks by position, and i
    sees j < i of its own bucket. So it depends only on earlier tokens (except for the
    rounding of sums). Chunks across buckets would depend on later tokens. All buckets
    are used at any length. The state keeps all tokens.

    Args:
        config, causal: see ``Attention``; reads ``ReformerOptions`` and
            attention_dropout.

    Raises:
        ValueError: an odd number of buckets; (in forward) a state, not causal.
    """

    constant_state = False

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.chunk_size = config.reformer_chunk_size
        self.buckets = config.reformer_buckets
        if self.buckets % 2:
            raise ValueError(f"reformer_buckets={self.buckets}; allowed: even numbers")
        self.k_proj = self.q_proj
        self.rotations = Rotations(
            config.reformer_hashes, self.num_heads, self.head_dim, self.buckets
        )
        self.initialise()

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: Tensor,
        key_padding_mask: Tensor | None,
        state: KeyValueState | None,
        return_state: bool,
    ) -> tuple[Tensor, KeyValueState | None]:
        check_state_kind(state, KeyValueState)
        query, value = zero_pads(query, value, key_padding_mask)
        if state is None and not return_state:
            return self._output(query, value, key_padding_mask), None
        added = query.shape[1]
        before = None if state is None else state.length
        length = real_lengths(query, key_padding_mask, before)
        seen = torch.ones(query.shape[:2], dtype=torch.bool, device=query.device)
        if key_padding_mask is not None:
            seen = ~key_padding_mask
        if state is not None:
            query = torch.cat((state.key, query), 1)
            value = torch.cat((state.value, value), 1)
            seen = torch.cat((state.seen, seen), 1)
        output = self._output(query, value, ~seen)[:, -added:]
        return output, KeyValueState(query, value, seen, length)

    def _output(self, query: Tensor, value: Tensor, pads: Tensor | None) -> Tensor:
        """(B, N, H, D) each, zero at pads -> (B, N, H D)."""
        layout = self._layout(query.detach(), pads)
        output, total = self._in_chunks(
            self._in_slots(query, layout), self._in_slots(value, layout), layout.chunk
        )
        share = total.gather(3, layout.place).softmax(2)[..., None]
        output = output.gather(3, self._index(layout))
        return (share * output).sum(2).to(value.dtype).transpose(1, 2).flatten(2)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        query, value = (
            each(x).unflatten(-1, (self.num_heads, self.head_dim))
            for each in (self.q_proj, self.v_proj)
        )
        return query, query, value

    def _layout(self, query: Tensor, pads: Tensor | None) -> Layout:
        """The tokens sorted by buckets, in the order of the text inside one."""
        size, length = self.chunk_size, query.shape[1]
        slots = -(-length // size) * size
        slot = torch.arange(slots, device=query.device)
        lengths = real_lengths(query, pads)
        bucket = self.rotations(query, self._pairs(lengths))
        if pads is not None:
            # after all others
            bucket = bucket.masked_fill(pads[:, None, None], self.buckets)
        ordered, order = bucket.sort(dim=-1, stable=True)
        if self.causal:
            rank = slot[:length] - torch.searchsorted(ordered, ordered)
            # chunks of two buckets are not neighbours
            chunk = ordered * (length // size + 2) + rank // size + 2
            chunk = F.pad(chunk, (0, slots - length))
        else:
            chunk = (slot // size + 2).expand(len(query), -1)
            chunk = chunk.masked_fill(slot >= lengths[:, None], 0)[:, None, None]
        return Layout(order.argsort(-1), chunk)

    def _pairs(self, lengths: Tensor) -> Tensor:
        """How many pairs of buckets rows of these lengths have, (B,)."""
        pairs = self.buckets // 2
        if self.causal:
            return torch.full_like(lengths, pairs)
        known = 2 ** torch.arange(pairs.bit_length(), device=lengths.device)
        chunks = lengths // self.chunk_size
        return known[(chunks[:, None] >= known).sum(-1).sub(1).clamp(min=0)]

    def _in_slots(self, x: Tensor, layout: Layout) -> Tensor:
        """(B, N, H, D) -> (B, H, R, S, D), zeros in slots without a token."""
        index = self._index(layout)
        x = x.transpose(1, 2).unsqueeze(2).expand_as(index)
        shape = *index.shape[:3], layout.chunk.shape[-1], self.head_dim
        return x.new_zeros(shape).scatter(3, index, x)

    def _index(self, layout: Layout) -> Tensor:
        """Each token's slot for each number in it, (B, H, R, N, D)."""
        return layout.place[..., None].expand(*layout.place.shape, self.head_dim)

    def _in_chunks(
        self, query: Tensor, value: Tensor, chunk: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Outputs of (B, H, R, S, D), and logarithms of sums, (B, H, R, S)."""
        *batch, slots, _ = query.shape
        size = self.chunk_size
        precise = query.to(accumulation_dtype(query.dtype))
        key = F.normalize(precise, dim=-1, eps=1e-6).to(query.dtype)
        # a bucket begins anywhere in a tile, and so do chunks inside buckets
        left = (2 if self.causal else 1) * size
        key, value = (tiles(x.flatten(0, 2), size, left, 0) for x in (key, value))
        # scores: B, H R, tiles, chunk, keys
        scores = query.flatten(0, 2).unflatten(1, (-1, size)) @ key.transpose(-1, -2)
        scores = scores.unflatten(0, (batch[0], batch[1] * batch[2]))
        scores = scores.to(accumulation_dtype(scores.dtype))
        place = torch.arange(left + size, device=query.device) - left
        itself = torch.arange(size, device=query.device)[:, None]
        scores = scores.masked_fill(place == itself, SELF_SCORE)
        hidden = self._hidden(chunk, left)
        if self.causal:
            hidden = hidden | (place > itself)
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        total = scores.logsumexp(-1, keepdim=True)
        # values in slots without a token are zero
        weights = F.dropout((scores - total).exp(), self.dropout, self.training)
        output = weights.flatten(0, 1).to(value.dtype) @ value
        output, total = (x.reshape(*batch, slots, x.shape[-1]) for x in (output, total))
        return output, total.squeeze(-1)

    def _hidden(self, chunk: Tensor, left: int) -> Tensor:
        """Keys of other chunks, bool (B, H R or 1, tiles, W, left + W)."""
        rows, heads, rounds, _ = chunk.shape
        chunk = chunk.flatten(0, 2)
        own = chunk.unflatten(1, (-1, self.chunk_size))[..., None]
        back = own - tiles(chunk, self.chunk_size, left, 0)[:, :, None]
        return ((back < 0) | (back > 1)).unflatten(0, (rows, heads * rounds))
