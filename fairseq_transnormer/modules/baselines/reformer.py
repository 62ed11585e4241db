"""Reformer: attention among tokens that are hashed alike (Kitaev et al., 2020)."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...ops.attention_inputs import real_lengths
from ...ops.backend import accumulation_dtype, autocast_disabled
from ...ops.block_states import pad_slots, tiles
from ..attention import QKV_GAIN_OF_FAIRSEQ, EncoderAttention
from ..float32 import Float32Module
from ..options import described
from ..registry import register_attention

# score of a token with itself: taken only where it sees nothing else
SELF_SCORE = -1e5


@dataclass
class ReformerOptions:
    """What can be configured of Reformer alone."""

    reformer_chunk_size: int = described(
        64, "Reformer: tokens of a chunk of the sorted row", at_least=1
    )
    reformer_hashes: int = described(2, "Reformer: rounds of hashing", at_least=1)
    reformer_buckets: int = described(
        128,
        "Reformer: most buckets of a row, an even number; short rows have fewer",
        at_least=2,
    )


class Rotations(Float32Module):
    """h(x) = argmax [x R; -x R] with random R, a set of them a round and head.

    They are a buffer, drawn when the module is built and saved with it.

    Args:
        rounds, heads, width: of what is hashed, (B, N, heads, width).
        buckets: most of them, an even number.
    """

    directions: Tensor

    def __init__(self, rounds: int, heads: int, width: int, buckets: int):
        super().__init__()
        self.register_buffer(
            "directions", torch.randn(rounds, heads, width, buckets // 2)
        )

    @torch.no_grad()
    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        """Numbers of the buckets, (B, H, rounds, N) int64.

        Args:
            x: (B, N, H, width).
            pairs: how many of the directions each row uses, (B,).
        """
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


@register_attention("reformer", ReformerOptions)
class ReformerAttention(EncoderAttention):
    """softmax over q_i . q_j / |q_j|, j in the chunk of i and in the one before it.

    Chunks are those of the row's tokens in the order of their buckets and, inside a
    bucket, of the text. A token sees itself only where it sees no other. The rounds of
    hashing are weighed by their sums of exp(score). Queries are the keys: there is no
    projection of keys. A row of n tokens uses the largest power of two of buckets that
    is at most 2 n / chunk size, but at least 2 and at most ``buckets``. Time grows as
    n log n, memory with n.

    Args:
        embed_dim, num_heads, causal: see ``EncoderAttention``.
        chunk_size, hashes, buckets: see ``ReformerOptions``.
        dropout: probability with which an attention weight is dropped in training.

    Raises:
        ValueError: an odd number of buckets.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool,
        chunk_size: int = 64,
        hashes: int = 2,
        buckets: int = 128,
        dropout: float = 0.0,
    ):
        super().__init__(embed_dim, num_heads, causal=causal)
        if buckets % 2:
            raise ValueError(f"reformer_buckets={buckets}; allowed: even numbers")
        self.k_proj = self.q_proj
        self.rotations = Rotations(hashes, num_heads, self.head_dim, buckets)
        self.chunk_size, self.dropout = chunk_size, dropout
        self.pairs = [2**i for i in range((buckets // 2).bit_length())]
        self.initialise(qkv_gain=QKV_GAIN_OF_FAIRSEQ)

    @classmethod
    def from_config(cls, config: Any, *, causal: bool) -> "ReformerAttention":
        return cls(
            config.embed_dim,
            config.num_heads,
            causal=causal,
            chunk_size=config.reformer_chunk_size,
            hashes=config.reformer_hashes,
            buckets=config.reformer_buckets,
            dropout=config.attention_dropout,
        )

    def encode(
        self, query: Tensor, key: Tensor, value: Tensor, pads: Tensor | None
    ) -> Tensor:
        lengths = real_lengths(query, pads)
        order = self._order(query.detach(), lengths, pads)
        rounds = order.shape[2]
        query, value = (
            x.transpose(1, 2)
            .unsqueeze(2)
            .expand(-1, -1, rounds, -1, -1)
            .gather(3, order[..., None].expand(*order.shape, self.head_dim))
            for x in (query, value)
        )
        output, total = self._in_chunks(query, value, lengths)
        back = order.argsort(-1)
        share = total.gather(3, back).softmax(2)[..., None]
        output = output.gather(3, back[..., None].expand_as(output))
        return (share * output).sum(2).to(value.dtype).transpose(1, 2)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.merged is not None:
            both = self.merged(x)
        else:
            both = self.q_proj(x), self.v_proj(x)
        query, value = (
            each.unflatten(-1, (self.num_heads, self.head_dim)) for each in both
        )
        return query, query, value

    def projections(self) -> tuple[nn.Linear, ...]:
        return self.q_proj, self.v_proj

    def _order(self, query: Tensor, lengths: Tensor, pads: Tensor | None) -> Tensor:
        """Tokens sorted by buckets, pads after them: (B, H, rounds, N) int64."""
        known = torch.tensor(self.pairs, device=query.device)
        chunks = lengths // self.chunk_size
        pairs = known[(chunks[:, None] >= known).sum(-1).sub(1).clamp(min=0)]
        bucket = self.rotations(query, pairs)
        if pads is not None:
            bucket = bucket.masked_fill(
                pads[:, None, None], torch.iinfo(bucket.dtype).max
            )
        return bucket.sort(dim=-1, stable=True).indices

    def _in_chunks(
        self, query: Tensor, value: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Outputs of sorted (B, H, R, N, D), and logarithms of sums, (B, H, R, N)."""
        *batch, length, _ = query.shape
        size = self.chunk_size
        query, value = (x.flatten(0, 2) for x in (query, value))
        precise = query.to(accumulation_dtype(query.dtype))
        key = F.normalize(precise, dim=-1, eps=1e-6).to(query.dtype)
        query = pad_slots(query, size).unflatten(1, (-1, size))
        key, value = (tiles(x, size, size, 0) for x in (key, value))
        # scores: B, H R, tiles, chunk, 2 chunks
        scores = (query @ key.transpose(-1, -2)).unflatten(
            0, (batch[0], batch[1] * batch[2])
        )
        scores = scores.to(accumulation_dtype(scores.dtype))
        place = torch.arange(2 * size, device=query.device) - size
        itself = place == torch.arange(size, device=query.device)[:, None]
        place = (
            place + size * torch.arange(query.shape[1], device=query.device)[:, None]
        )
        outside = (place < 0) | (place >= lengths[:, None, None])
        scores = scores.masked_fill(itself, SELF_SCORE)
        scores = scores.masked_fill(
            outside[:, None, :, None], torch.finfo(scores.dtype).min
        )
        total = scores.logsumexp(-1, keepdim=True)
        # values outside are zero
        weights = F.dropout((scores - total).exp(), self.dropout, self.training)
        output = weights.flatten(0, 1).to(value.dtype) @ value
        slots = query.shape[1] * size
        output, total = (
            x.reshape(*batch, slots, x.shape[-1])[..., :length, :]
            for x in (output, total)
        )
        return output, total.squeeze(-1)
